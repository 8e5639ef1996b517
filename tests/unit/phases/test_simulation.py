"""A small number of simulated migrations under faults; ``python -m tests.simulation`` plays as many as one likes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from tests.simulation.__main__ import main, play_many
from tests.simulation.aims import AFTER_AN_UPGRADE, CANNOT, can_occur, table
from tests.simulation.batches import REMAINDER as BATCHED
from tests.simulation.batches import Layout
from tests.simulation.leg import REMAINDER
from tests.simulation.planted import PLANTED
from tests.simulation.run import (
    FENCED,
    LONE_TOPICS,
    OPEN_CHANNEL,
    REFUSING,
    REHEARSED_WITH_TROUBLE,
    SLOW_STARTS,
    Coverage,
    Faults,
    Run,
)
from tests.simulation.settings import Changed
from tests.simulation.stores import Lost

from kraftbridge.models.conditions import ConditionType, condition
from kraftbridge.models.phase import FORWARD, Part, Phase, Target

RUNS = 150
WITHIN = 5000
"""Runs of the default mix within which each planted bug is found."""
ANY = range(WITHIN)


def seeds_with(world: Callable[[Run], object]) -> Iterator[int]:
    """Return the seeds whose runs can have a world: to play until it occurs, so that no seed need be named."""
    return (seed for seed in ANY if world(Run(seed, Coverage())))


def test_no_promise_is_broken() -> None:
    coverage, broken = play_many(0, RUNS, "", guarded=True)
    assert broken == [], "python -m tests.simulation --trail SEED shows the steps"
    # A simulation that goes nowhere keeps every promise.
    assert {str(p) for p in FORWARD} | {"RollingBack", "RolledBack"} <= {phase for phase, _ in coverage.states}
    assert coverage.ends[Phase.COMPLETED] > RUNS // 4
    assert coverage.ends[Phase.ROLLED_BACK] > RUNS // 20
    assert len(coverage.faults) >= 15
    aimed = {(world, str(phase)) for phase in Phase for world in can_occur(phase)}
    assert coverage.worlds.keys() <= aimed | {(world, str(phase)) for world, phase in AFTER_AN_UPGRADE}
    assert {world for world, _ in coverage.worlds} == set(CANNOT)


def test_the_table_of_the_worlds_says_why_a_world_cannot_occur() -> None:
    lines = table({"frozen operator → Completed": 7})
    assert len(lines) == 2 + len(CANNOT) + 1 + len({reason for cannot in CANNOT.values() for reason in cannot.values()})
    (frozen,) = (line.split(" | ") for line in lines if line.startswith("| frozen operator"))
    assert frozen[1 + list(Phase).index(Phase.COMPLETED)] == "7"
    assert "| deleted object | cannot (3) |" in "\n".join(lines)
    assert "(3) the controllers do not exist" in lines


@pytest.mark.parametrize("phase", Phase)
def test_a_world_cannot_occur_where_the_operator_does_not_read_what_changes(phase: Phase) -> None:
    for part, worlds in ((Part.ZOOKEEPER, [Lost.WIPED, Lost.FOREIGN]), (Part.SURVEY, list(Changed))):
        assert all((world in can_occur(phase)) is (part in phase.row.needs) for world in worlds)


def test_a_failover_of_a_mirror_that_stands_still_archives_first() -> None:
    """The archive's act was lost with the operator, then the mirror stood still."""
    assert play_many(42422, 1, "", guarded=True)[1] == []


@pytest.mark.long
@pytest.mark.parametrize("seed", [145, 184, 296, 341, 382, 433, 521, 586, 610, 727, 784])
def test_brokers_on_a_template_that_somebody_took_back_are_mended(seed: int) -> None:
    """Without an admission policy; each of these once waited for ever for a broker that only a restart could bring back."""
    _, broken = play_many(seed, 1, "", guarded=False)
    assert broken == []


@pytest.mark.long
@pytest.mark.parametrize("seed", [101297, 118428, 136040, 143155, 166036, 416073, 515279])
def test_waits_and_restarts_that_a_hundred_thousand_runs_found(seed: int) -> None:
    """In this order: an agreement on a past controller, a copy without a voter's registration, a quorum without voters during a restart (twice), a pause as a rollback ends, a controllers' roll in Completed without a Lease."""
    assert play_many(seed, 1, "", guarded=True)[1] == []


@pytest.mark.long
def test_a_rehearsal_that_fails_hangs_or_knows_nothing_keeps_the_gate_closed() -> None:
    coverage, broken = Coverage(), []
    for seed in range(3, 3 + 8 * 30, 8):
        more, found = play_many(seed, 1, "", guarded=True)
        coverage.states += more.states
        broken += found
    assert broken == []
    acts = {act for phase, act in coverage.states if phase in ("Preflight", "ProvisioningQuorum")}
    assert acts >= {"LaunchRun", "FenceRun", "CollectRun", "RemoveRun"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("plant", "seeds", "words"),
    [
        ("credulous", range(4, 28), "RollbackPossible is True"),
        ("bereft", range(80, 88), "not at rest"),
        ("generous", range(1000, 1060), "a restoration that nobody asked for"),
        ("oblivious", range(2, 26), "an original state is lost"),
    ],
)
def test_stores_that_are_not_what_they_were_are_found_out(plant: str, seeds: range, words: str) -> None:
    """ZooKeeper wiped, exchanged, older or cut, and objects of ours deleted: the default mix has them, and finds each old bug."""
    assert play_many(seeds.start, len(seeds), "", guarded=True)[1] == []
    _, broken = play_many(seeds.start, len(seeds), plant, guarded=True)
    assert any(words in found for _, found in broken)


@pytest.mark.long
@pytest.mark.parametrize(
    ("plant", "words"),
    [
        ("frozen", "TakingOver entered by controllers that do not have the brokers' present settings"),
        ("frozen", "RollingBrokers entered by controllers that do not have the brokers' present settings"),
        ("heedless", "is restarted although preflight refuses a present setting of the brokers"),
    ],
)
def test_settings_that_change_after_preflight_are_read_anew(plant: str, words: str) -> None:
    """The brokers' owner changes what the controllers share, or sets what preflight refuses: the default mix has it, and finds the old bugs."""
    found = (s for s in ANY for _, said in play_many(s, 1, plant, guarded=True)[1] if words in said)
    coverage, broken = play_many(next(found), 1, "", guarded=True)
    assert broken == []
    assert coverage.faults["a changed shared setting"] + coverage.faults["a setting that preflight refuses"] > 0


@pytest.mark.long
@pytest.mark.parametrize("plant", ["", "unfenced"])
def test_a_process_that_wakes_up_after_another_has_gone_on_changes_nothing(plant: str) -> None:
    """Frozen between publishing and acting: the default mix has it, and finds the old bug."""
    missing = {"ProvisioningQuorum", "TakingOver", "RollingBrokers"}
    woken_act = False
    for seed in seeds_with(lambda run: run.frozen.chance):
        coverage, broken = play_many(seed, 1, plant, guarded=True)
        missing -= {phase for world, phase in coverage.worlds if world == "frozen operator"}
        woken_act = woken_act or any("a process that woke up does" in words for _, words in broken)
        assert plant or broken == []
        if not missing and (woken_act or not plant):
            return
    pytest.fail(f"no process froze in {missing}" if missing else "no process that woke up did anything")


FENCED_SEEDS = [s for s in range(320, 800) if s % 32 in FENCED and s % 6 != REMAINDER and s % 13 != BATCHED]
"""Without the leg from an older release and without batches, in which more happens."""


@pytest.mark.long
@pytest.mark.parametrize("plant", ["", "one-voiced"])
def test_a_broker_that_the_quorum_fenced_holds_back_restarts(monkeypatch: pytest.MonkeyPatch, plant: str) -> None:
    """Its process runs and its pod is Ready: nothing but lost heartbeats goes wrong in these migrations."""
    monkeypatch.setattr(Faults, "drawn", classmethod(lambda cls, _: cls()))
    coverage, broken = Coverage(), []
    for seed in FENCED_SEEDS:
        more, found = play_many(seed, 1, plant, guarded=True)
        coverage.faults += more.faults
        broken += [words for _, words in found]
    assert coverage.faults["heartbeats_lost"] > len(FENCED_SEEDS)
    assert set(coverage.faults) <= {"heartbeats_lost", "lone_topic", "tag_moved", "same_name", "settings_refused"}
    assert any("out of sync" in words for words in broken) if plant else broken == []


OPEN = range(OPEN_CHANNEL, OPEN_CHANNEL + 11 * 40, 11)


@pytest.mark.long
def test_a_channel_that_is_left_open_is_found_and_kept_although_templates_change() -> None:
    coverage, broken = Coverage(), []
    for seed in OPEN:
        more, found = play_many(seed, 1, "", guarded=True)
        coverage.faults += more.faults
        coverage.ends += more.ends
        broken += found
    assert broken == []
    assert coverage.faults["channel_changed"] > 20
    assert coverage.ends[Phase.COMPLETED] > 10


@pytest.mark.long
def test_a_guessed_channel_is_not_enough() -> None:
    found = [words for seed in OPEN for _, words in play_many(seed, 1, "guessing", guarded=True)[1]]
    assert any("reaches the brokers" in words for words in found)


def heals(run: Run) -> bool:
    """Whether the stores may come to differ."""
    return run.faults.lost_write + run.faults.zookeeper_edited > 0


def edits_controllers(run: Run) -> bool:
    """Whether spec.controllers may change, and no controller is lost otherwise: such a loss excuses the operator."""
    faults = run.faults
    return faults.controllers_edited > 0 and faults.controller_crash + faults.controller_evicted == 0


def renews(run: Run) -> bool:
    """Whether the certificate of the controllers' listener may be renewed."""
    return run.certificates.chance > 0


FENCED_SEEDS_OF_THE_MIX = [seed for seed in ANY if seed % 32 in FENCED]
LEGS = range(REMAINDER, WITHIN, 6)
WITHOUT_ZONES = (seed for seed in range(BATCHED, WITHIN, 13) if not Layout(seed, troubled=True).zones)
LONE_SEEDS = [seed for seed in ANY if seed % 16 in LONE_TOPICS]


@pytest.mark.long
@pytest.mark.parametrize(
    ("plant", "words", "seeds"),
    [
        ("trusting", "without a fresh passed verdict", ANY),
        ("careless", "out of sync", ANY),
        ("one-voiced", "out of sync", FENCED_SEEDS_OF_THE_MIX),
        ("forgetful", "the only replica of a topic", LONE_SEEDS),
        ("unheard", "does not run what spec.controllers says", ANY),
        ("patient", "not at rest", ANY),
        ("untold", "the controllers reach no broker", seeds_with(lambda run: run.cluster.kafka.deaf)),
        ("hurried", "for the controller, not", ANY),
        ("unrehearsed", "without a fresh rehearsal", ANY),
        ("brokerless", "without a fresh rehearsal", range(REHEARSED_WITH_TROUBLE, WITHIN, 8)),
        ("unproven", "before the probe had proven its fence", ANY),
        ("nameless", "volumes of an earlier resource", ANY),
        ("unkept", "has not been archived", seeds_with(heals)),
        ("assuming", "nobody has stopped the controllers", ANY),
        ("inattentive", "came back with another image", seeds_with(lambda run: run.cluster.images.may_move)),
        ("unasked", "reaches the brokers", range(OPEN_CHANNEL, WITHIN, 11)),
        ("believing", "is not what it was", range(REFUSING, WITHIN, 8)),
        ("recognizing", "nobody says that it is the same", ANY),
        ("unlooking", "no dry start has looked at its present template", ANY),
        ("resting", "Ready is True in", ANY),
        ("walled", "the controllers do not reach brokers", seeds_with(lambda run: run.walls.is_possible)),
        ("merciless", "had to be killed", ANY),
        ("amnesic", "not at rest", ANY),
        ("ageless", "not at rest", seeds_with(renews)),
        ("hasty", "all controllers restart", seeds_with(renews)),
        ("crowding", "is stopped while [", seeds_with(edits_controllers)),
        ("hoarding", "that nothing mounts", ANY),
        ("greedy", "is stopped beside", WITHOUT_ZONES),
        ("impatient", "while it recovers its logs", range(SLOW_STARTS, WITHIN, 8)),
        ("unpinned", "while another broker runs the former image", LEGS),
        ("relapsing", "starts with the former image after it has run 3.9's protocol", LEGS),
        ("wordless", "nobody has given the former image up", LEGS),
        ("hasty-lift", "entered while a topic has no id", LEGS),
        ("contented", "not at rest", LEGS),
        ("prompt", "ended by itself, and is called killed", ANY),
        ("stateless", "not at rest", seeds_with(lambda run: run.cluster.kafka.makes_topics_meanwhile)),
    ],
)
def test_a_planted_bug_is_found(plant: str, words: str, seeds: Iterable[int]) -> None:
    assert plant in PLANTED
    assert any(words in found for seed in seeds for _, found in play_many(seed, 1, plant, guarded=True)[1])


@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_bug_is_called_as_what_it_replaces_is(plant: str) -> None:
    """Otherwise the call fails, every run breaks, and nothing was looked for."""
    module, attribute, bug = PLANTED[plant]
    parameters = inspect.signature(getattr(module, attribute)).parameters.values()
    by_name = {p.name: None for p in parameters if p.kind is p.KEYWORD_ONLY}
    given = [None for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    required = [None for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty]
    optional = {p.name: None for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is not p.empty}
    inspect.signature(bug).bind(*given, **by_name)
    inspect.signature(bug).bind(*required, **optional, **by_name)


def test_results_are_kept_and_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results.jsonl"
    arguments = ["simulation", "--results", str(results), "--runs", "3"]
    monkeypatch.setattr("sys.argv", arguments)
    assert main() == 0
    first = results.read_text()
    assert main() == 0
    assert results.read_text() == first
    monkeypatch.setattr("sys.argv", [*arguments, "--report"])
    assert main() == 0
    assert capsys.readouterr().out.count("3 runs, ") == 3
    monkeypatch.setattr("tests.simulation.__main__.sources_digest", lambda: "other sources")
    monkeypatch.setattr("sys.argv", [*arguments, "--report"])
    assert main() == 0
    assert "0 runs, 0 steps" in capsys.readouterr().out, "what other sources did says nothing of these"


RESTS = {
    Target.QUORUM_READY: Phase.PROVISIONING_QUORUM,
    Target.DUAL_WRITE: Phase.DUAL_WRITE,
    Target.KRAFT_BROKERS: Phase.AWAITING_FINALIZATION,
    Target.KRAFT: Phase.COMPLETED,
}


@pytest.mark.long
@pytest.mark.parametrize("target", RESTS)
def test_a_simulated_day_at_rest(monkeypatch: pytest.MonkeyPatch, target: Target) -> None:
    """A healthy cluster: at most two runs of Spark, and Ready stays True. Before: 130 runs and 260 changes of Ready."""
    monkeypatch.setattr(Faults, "drawn", classmethod(lambda cls, _: cls()))
    run = Run(0, Coverage())
    run.spec = run.spec.model_copy(update={"target": target})
    run.pace = 10.0
    while not run._at_rest():
        run.step()
        assert run.coverage.steps < 3000, run.status.message
    runs = len(run.cluster.runs)
    began = run.cluster.time.now
    while run.cluster.time.now - began < 24 * 3600:
        run.step()
        ready = condition(run.status.conditions, ConditionType.READY)
        assert ready is not None
        assert ready.status == "True", run.status.message
    assert run.status.phase is RESTS[target]
    assert len(run.cluster.runs) - runs <= 2


def test_a_run_repeats_from_its_seed() -> None:
    trails = []
    for _ in range(2):
        run = Run(7, Coverage())
        run.faults = Faults.drawn(run.random)
        try:
            run.play()
        except AssertionError as e:
            run.trail.append(str(e))
        trails.append(run.trail)
    assert trails[0] == trails[1]
    assert len(trails[0]) > 5
