"""Bugs planted into `decide`, to see that the simulation finds them: one trusts, one is careless, one hurries, one keeps nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from kraftbridge.models.assignments import Replicas
from kraftbridge.models.dry_start import DryStartRun, DryStartStage
from kraftbridge.models.observation import (
    ControllersWorkload,
    PodState,
    StatefulSetState,
    Unobserved,
    ZooKeeperState,
)
from kraftbridge.models.phase import BrokerMode, ControllerMode
from kraftbridge.models.status import (
    DryStartRunStatus,
    FindingStatus,
    KeptCopy,
    LostQuorum,
    MigrationStatus,
    Operation,
)
from kraftbridge.models.survey import Survey
from kraftbridge.phases import (
    basis,
    belongings,
    canary,
    dry_starting,
    expired,
    forward,
    gates,
    healing,
    history,
    lost_quorum,
    observed,
    originals,
    presented,
    reaching,
    rehearsing,
    rests,
    rollback,
    shared_settings,
    uids,
    upgrading,
    verifying,
)
from kraftbridge.phases.draft import Draft, StepContext, Wait
from kraftbridge.phases.nodes import (
    batches,
    batching,
    converging,
    deadlines,
    expanding,
    rolls,
    sights,
    stopping,
    templates,
)
from kraftbridge.phases.preflight import channel, rehearsal

_record_ways_out = lost_quorum._record_ways_out


def _verdict_is_taken_for_granted(*_: Any, **__: Any) -> None:
    """Open every gate as though its verification had passed."""


def _nobody_asks_for_isr(_draft: Draft) -> list[str]:
    """Take the cluster for healthy."""
    return []


def _one_broker_is_believed(step: StepContext) -> list[str]:
    """Ask one broker only, and neither the quorum nor ZooKeeper who is alive, as up to da8c3d4."""
    cluster, sets = step.observation.cluster, step.stateful_sets()
    if isinstance(cluster, Unobserved) or isinstance(sets, Unobserved):
        return ["not observed"]
    pods = [p.name for s in sets for p in s.pods if p.deleting or not p.ready]
    return [*pods, *cluster.problems(frozenset(step.status.broker_ids.values()))]


def _stores_are_enough(*_: Any) -> list[str]:
    """Leave TakingOver when the change is in both stores, as up to da8c3d4: no broker is asked."""
    return []


def _the_change_is_not_rolled_out(_draft: Draft) -> Wait | None:
    """Do nothing about a change of spec.controllers once the voters are formatted, as up to da8c3d4."""


def _no_deadline_ever_passes(_step: StepContext) -> None:
    """Wait for ever for a broker that is Ready and never registers, as up to da8c3d4."""


def _nobody_waits_for_the_controller(_draft: Draft) -> Wait | None:
    """Roll back without asking whom each broker takes for the controller."""


def _every_broker_is_believed(_draft: Draft, *, unseen: bool = True) -> None:
    """Compare no broker with what it was, as up to 87d037e."""


def _nobody_rehearses(*_: Any, **__: Any) -> None:
    """Take every rehearsal for one that works."""


def _nobody_asks_the_brokers(*_: Any) -> tuple[FindingStatus, ...]:
    """Take a rehearsal for what Kafka's migration shows alone."""
    return ()


def _no_fence_is_proven(draft: Draft, run: DryStartRunStatus, seen: DryStartRun) -> None:
    """Let the copies of the brokers' pods go before the probe has ended."""
    if DryStartStage.COPIES in seen.made:
        dry_starting._run_copies(draft, dry_starting._enter(draft, run, DryStartStage.COPIES), seen)
    else:
        dry_starting._launch_stage(draft, run)


def _the_name_is_enough(migration: str, _uid: str, attempt: int) -> str:
    """Name the controllers without the resource's UID, as up to da8c3d4."""
    return f"{migration}-kraft" if attempt == 1 else f"{migration}-kraft-{attempt}"


def _preflight_has_seen_the_topics(_step: StepContext) -> list[str]:
    """Restart brokers as though the topics were still those that preflight saw, as up to da8c3d4."""
    return []


def _nothing_is_kept(*_: Any) -> bool:
    """Overwrite what has not been archived."""
    return True


def _the_templates_stay_as_they_were(_step: StepContext) -> bool:
    """Restart brokers by the recorded channel without asking whether it still reaches them."""
    return False


def _a_guess_is_enough(_step: StepContext) -> str:
    """Take the channel that the templates suggest for one that a dry start proved."""
    return ""


def _any_image_will_do(*_: Any, **__: Any) -> None:
    """Restart the next broker whatever image the last one came back with."""


def _zookeeper_is_believed(_draft: Draft) -> None:
    """Take the znodes for the history of the attempt, as up to 87d037e."""


def _what_is_absent_was_stopped(step: StepContext) -> bool:
    """Take the absence of the StatefulSet for stopped controllers, as up to 87d037e."""
    workload = step.observation.controllers
    if step.status.controllers is None:
        return True
    if not isinstance(workload, ControllersWorkload):
        return False
    found = workload.stateful_set
    return found is None or (found.deleting and not found.pods)


def _no_start_takes_long(_step: StepContext, _pod: PodState) -> None:
    """Take no line of a log for progress, as up to 87d037e."""


def _preflight_has_seen_the_settings(step: StepContext, _survey: Survey) -> dict[str, str]:
    """Let the controllers rule with the settings that preflight saw, as up to 7ed954f."""
    return dict(step.status.broker_settings)


def _preflight_has_judged_the_settings(_step: StepContext) -> tuple[FindingStatus, ...]:
    """Restart brokers whatever preflight would find in their present settings, as up to 7ed954f."""
    return ()


def _nothing_is_created_again(_draft: Draft) -> Wait | None:
    """Wait for controllers that somebody deleted, as up to 87d037e."""


def _the_operator_chooses(draft: Draft, lost: LostQuorum, kept: KeptCopy | None) -> Wait:
    """Restore a lost quorum from the kept copy without being asked."""
    known = draft.status.controllers
    if kept is None or known is None:
        return _record_ways_out(draft, lost, kept)
    return lost_quorum._begin(draft, known, kept)


def _an_act_is_what_was_decided(*_: Any) -> str:
    """Act on what was decided whatever has become of it since, as up to 7ed954f."""
    return ""


def _nobody_misses_an_original(_step: StepContext) -> tuple[()]:
    """Take every original state for recorded, as up to 87d037e."""
    return ()


_STOPS = rollback._ensure_controllers_stopped


def _an_old_stop_takes_the_isolation_along(draft: Draft, zookeeper: ZooKeeperState) -> Wait | None:
    """Forget that the controllers are isolated with a stop that did not happen, as up to 7e975f2."""
    controllers = draft.status.controllers
    stopped_at = observed.rollback_record(draft.status).controllers_stopped_at
    if observed.age(draft, stopped_at) > rollback.STOP_REPEATED_FOR and rollback.without_controller(draft.status):
        draft.update(rollback=None)
    isolated = controllers is not None and controllers.mode is ControllerMode.ISOLATED
    if controllers is not None and isolated and draft.status.rollback is None and not gates.controllers_gone(draft):
        return rollback._ensure_nothing_is_lost(draft, controllers, zookeeper) or Wait("the controllers stop")
    return _STOPS(draft, zookeeper)


def _what_was_looked_at_stays(_draft: Draft, _stateful_set: StatefulSetState) -> Wait | None:
    """Restart brokers on whatever somebody wrote since the last dry start, as up to 786829f."""


def _a_name_is_an_identity(_step: StepContext) -> list[object]:
    """Take an object for the recorded one because it has its name, as up to 786829f."""
    return []


def _a_rest_is_a_rest(_step: StepContext) -> list[str]:
    """Ask nothing at a rest that was reached once, as up to 6a8f8bd."""
    return []


def _no_certificate_ends(_step: StepContext) -> tuple[()]:
    """Take every certificate for valid, as up to 786829f: controllers restart one at a time, or wait for ever."""
    return ()


def _every_path_is_open(*_: Any, **__: Any) -> None:
    """Take brokers over whether the controllers reach them or not, as up to 7476010: only the canary tells."""


def _a_killed_broker_is_one_that_ended(_step: StepContext) -> None:
    """Restart the next broker although the last one had to be killed, as up to 7476010."""


def _an_end_that_nobody_knows_is_a_good_one(_step: StepContext, _operation: Operation) -> str:
    """Take an end that neither pod nor log shows for one that needs no look, as up to a8b3ad0."""
    return ""


def _any_phase_will_do(_step: StepContext) -> list[str]:
    """Restart all controllers whose certificate has ended in any phase."""
    return []


_LACK_OF_PODS = converging._lack_of_pods


def _all_paces_are_one(step: StepContext, _pace: converging.Pace, *pods: Any) -> converging.Lack | None:
    """Restart all controllers at once, whatever they are restarted for."""
    return _LACK_OF_PODS(step, converging.Pace.ALL, *pods)


def _the_newest_is_the_lowest(protocols: Iterable[str]) -> str:
    """Bring brokers to 3.9 without a pin, beside those of the former release."""
    return "3.9-IV0" if any(protocols) else ""


def _a_lift_is_no_news(_draft: Draft, _mode: BrokerMode) -> None:
    """Roll back to the former image although brokers have run 3.9's protocol."""


def _one_roll_is_enough(_status: MigrationStatus) -> bool:
    """Lift every protocol in migration mode, also one with which topics have no ids."""
    return False


def _silence_counts_at_once(*_: Any) -> None:
    """Take a log that says nothing yet for one that never does."""


def _nobody_asks_for_a_word(_step: StepContext) -> None:
    """Give the former image up unasked."""


def _no_leader_hangs(_step: StepContext) -> tuple[str, ...]:
    """Wait for partitions whose leaders do not ask for their full ISR."""
    return ()


def _nobody_creates_states(_step: StepContext, _action: type[Any]) -> bool:
    """Fail over without the states that partitions lack in ZooKeeper."""
    return True


def _every_partition_has_room(_replicas: Replicas) -> int:
    """Let a batch take any replica."""
    return 9


def _nobody_goes_alone(*_: Any) -> list[str]:
    """Let ZooKeeper's controller and the last broker of the first roll join a batch."""
    return []


def _nothing_is_superseded(_step: StepContext) -> tuple[tuple[str, str], ...]:
    """Keep every configuration that the controllers ever had."""
    return ()


PLANTED: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "stateless": (StepContext, "has_tried", _nobody_creates_states),
    "trusting": (verifying, "ensure_verdict", _verdict_is_taken_for_granted),
    "careless": (gates, "cluster_blockers", _nobody_asks_for_isr),
    "unheard": (rolls, "roll_changed_controllers", _the_change_is_not_rolled_out),
    "patient": (deadlines, "overdue", _no_deadline_ever_passes),
    "untold": (canary, "_not_served_by", _stores_are_enough),
    "one-voiced": (gates, "cluster_blockers", _one_broker_is_believed),
    "forgetful": (gates, "redundancy_blockers", _preflight_has_seen_the_topics),
    "hurried": (rollback, "_controller_agreed", _nobody_waits_for_the_controller),
    "unrehearsed": (rehearsing, "ensure_rehearsal", _nobody_rehearses),
    "brokerless": (rehearsal, "_broker_findings", _nobody_asks_the_brokers),
    "unproven": (dry_starting, "_prove_fence", _no_fence_is_proven),
    "nameless": (forward, "controllers_name", _the_name_is_enough),
    "unasked": (channel, "outdated", _the_templates_stay_as_they_were),
    "guessing": (channel, "unproven", _a_guess_is_enough),
    "inattentive": (rolls, "_other_image", _any_image_will_do),
    "credulous": (history, "track", _zookeeper_is_believed),
    "assuming": (gates, "controllers_gone", _what_is_absent_was_stopped),
    "bereft": (belongings, "restore", _nothing_is_created_again),
    "generous": (lost_quorum, "_record_ways_out", _the_operator_chooses),
    "oblivious": (originals, "lost", _nobody_misses_an_original),
    "believing": (rolls, "_ensure_compared", _every_broker_is_believed),
    "impatient": (sights, "recovering", _no_start_takes_long),
    "frozen": (shared_settings, "taken_anew", _preflight_has_seen_the_settings),
    "heedless": (shared_settings, "_standing", _preflight_has_judged_the_settings),
    "unfenced": (basis, "overtaken", _an_act_is_what_was_decided),
    "amnesic": (rollback, "_ensure_controllers_stopped", _an_old_stop_takes_the_isolation_along),
    "unlooking": (templates, "ensure_looked_at", _what_was_looked_at_stays),
    "recognizing": (uids, "_exchanged", _a_name_is_an_identity),
    "resting": (rests, "blockers", _a_rest_is_a_rest),
    "walled": (reaching, "wait_before_restart", _every_path_is_open),
    "incurious": (stopping, "_unknown", _an_end_that_nobody_knows_is_a_good_one),
    "merciless": (stopping, "wait_before_restart", _a_killed_broker_is_one_that_ended),
    "ageless": (presented, "expired", _no_certificate_ends),
    "hoarding": (converging, "superseded", _nothing_is_superseded),
    "crowding": (converging, "_lack_of_pods", _all_paces_are_one),
    "hasty": (expired, "_phase_hindrances", _any_phase_will_do),
    "unkept": (healing, "_archived", _nothing_is_kept),
    "unpinned": (upgrading, "lowest", _the_newest_is_the_lowest),
    "relapsing": (upgrading, "note_lift", _a_lift_is_no_news),
    "wordless": (upgrading, "wait_for_word", _nobody_asks_for_a_word),
    "hasty-lift": (upgrading, "lifts_alone", _one_roll_is_enough),
    "gregarious": (batching, "_roles", _nobody_goes_alone),
    "contented": (expanding, "stuck_partitions", _no_leader_hangs),
    "prompt": (stopping, "ensure_log_read", _silence_counts_at_once),
    "greedy": (batches, "room_of", _every_partition_has_room),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant one of the bugs; ``""`` plants none."""
    if not name:
        yield
        return
    module, attribute, bug = PLANTED[name]
    with mock.patch.object(module, attribute, bug):
        yield
