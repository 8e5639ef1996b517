"""Steps of a run that read: ZooKeeper first, the voters' logs after it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame

from kraftbridge.metadata.entities import PASSWORD_LENGTH_PREFIX
from kraftbridge.metadata.zookeeper.soundness import Soundness
from kraftbridge.models.catalogue import Code
from kraftbridge.models.report import EntityKind, Fence, Finding, Profile, VoterState, ZooKeeperAccess
from kraftbridge.verification.compare.differences import difference_of_flagged
from kraftbridge.verification.compare.places import compare
from kraftbridge.verification.inputs import Dump
from kraftbridge.verification.run import Run, notes_among
from kraftbridge.verification.session import set_shuffle_size
from kraftbridge.verification.sources.plans import LogPlan, ZooKeeperPlan
from kraftbridge.verification.sources.rows import ZOOKEEPER, Leg, Note

_FEW_ROWS: Final = 50_000


def _zookeeper_plan(run: Run, *, soundness: bool) -> ZooKeeperPlan:
    place = run.inputs.zookeeper
    return ZooKeeperPlan(
        salt=run.salt.hex(),
        encoder_secret_path=run.inputs.encoder_secret_path,
        access=place if isinstance(place, ZooKeeperAccess) else None,
        dump=str(place.path.resolve()) if isinstance(place, Dump) else None,
        chroot=place.chroot if isinstance(place, Dump) else "",
        soundness=soundness,
        parallelism=max(2, run.session.sparkContext.defaultParallelism),
    )


def check_tree(run: Run) -> None:
    """Read ZooKeeper's tree and check that it is sound."""
    with run.stage("read zookeeper"):
        frame = run.load("zookeeper", _zookeeper_plan(run, soundness=True).model_dump_json())
        notes = notes_among(frame)
    soundness = Soundness()
    for note in notes:
        match note["kind"]:
            case Note.FINDING:
                run.outcome.add_finding(Finding.model_validate(json.loads(note["value"])))
            case Note.PROBLEM if "cannot be" in json.loads(note["value"]):
                run.outcome.problems.append(json.loads(note["value"]))
            case Note.PROBLEM if note["key"] != "/migration":
                soundness.undecodable(note["key"], json.loads(note["value"]))
    facts = [json.loads(note["value"]) for note in notes if note["kind"] == Note.COUNT]
    highest = max((fact["highestEpoch"] for fact in facts), default=-1)
    soundness.epochs(
        next((fact["controllerEpoch"] for fact in facts if fact["controllerEpoch"] is not None), None), highest
    )
    for finding in soundness.findings:
        run.outcome.add_finding(finding)
    for fact in facts:
        run.outcome.add_dropped_findings(fact["dropped"])
    _take_fence(run, notes)
    with run.stage("count"):
        comparison = compare(frame, Leg.MIRROR, [ZOOKEEPER])
    run.count(comparison, {ZOOKEEPER: "zookeeper"})
    for flagged in comparison.flagged:
        run.outcome.add_difference(difference_of_flagged(flagged, [ZOOKEEPER]))
    if not comparison.rows_in(ZOOKEEPER):
        run.outcome.problems.append("ZooKeeper holds no metadata of Kafka below this chroot")


def read_zookeeper(run: Run) -> DataFrame:
    """Return ZooKeeper's rows; note what it mirrors and what could not be understood."""
    with run.stage("read zookeeper"):
        frame = run.load("zookeeper", _zookeeper_plan(run, soundness=False).model_dump_json())
        notes = notes_among(frame)
    run.outcome.unreadable |= {note["key"]: json.loads(note["value"]) for note in notes if note["kind"] == Note.PROBLEM}
    for note in notes:
        if note["kind"] == EntityKind.BROKER_CONFIG:
            config = json.loads(note["value"])
            names = (name for name, value in config.items() if value.startswith(PASSWORD_LENGTH_PREFIX))
            run.outcome.passwords += (f"broker {note['key']}: {name}" for name in names)
    _take_fence(run, notes)
    return frame


def _take_fence(run: Run, notes: Sequence[Any]) -> None:
    fences = [json.loads(note["value"]) for note in notes if note["kind"] == Note.FENCE]
    if fences:
        run.fence = Fence(
            first_offset=min(fence["first"] for fence in fences),
            last_offset=max(fence["last"] for fence in fences),
            epoch=max(fence["epoch"] for fence in fences),
            controller_id=fences[-1]["controllerId"],
            batches=sum(fence["batches"] for fence in fences),
        )


def read_logs(run: Run) -> DataFrame:
    """Return the voters' rows; note how far each log goes."""
    inputs = run.inputs
    first = run.fence.first_offset
    if inputs.profile is Profile.DUAL_WRITE and (first is None or first < 0):
        run.outcome.problems.append(
            "ZooKeeper mirrors no log: /migration is absent or says that nothing was copied; "
            "the cluster is not in dual-write"
        )
    several = len(inputs.voters) > 1
    plan = LogPlan(
        salt=run.salt.hex(),
        encoder_secret_path=inputs.encoder_secret_path,
        voters=inputs.voters,
        token_path=inputs.token_path,
        ca_path=inputs.ca_path,
        replicas_offset=inputs.replicas_offset if several else None,
        fence_offset=first,
        at_fence=not inputs.live,
        served=bool(inputs.brokers),
    )
    with run.stage("read logs"):
        frame = run.load("kraft-log", plan.model_dump_json())
        notes = {int(note["key"]): json.loads(note["value"]) for note in notes_among(frame) if note["kind"] == Note.LOG}
    records = 0
    for index, state in enumerate(inputs.states):
        note = notes.get(state.id, {"problem": f"nothing was read of voter {state.name}'s log"})
        if note["problem"]:
            run.outcome.problems.append(f"voter {state.name}: {note['problem']}")
        _take_voter(run, index, state, note)
        records += note.get("records") or 0
    run.few = records < _FEW_ROWS
    set_shuffle_size(run.session, records)
    return frame


def _take_voter(run: Run, index: int, state: VoterState, note: dict[str, Any]) -> None:
    inputs = run.inputs
    inputs.states[index] = state.model_copy(
        update={
            # Offline the end is known; this replay went as far as all logs reach.
            "end_offset": state.end_offset if state.end_offset is not None else note.get("endOffset"),
            "snapshot_offset": note.get("snapshotOffset"),
            "records": note.get("records"),
            "problem": note["problem"],
            "torn_tail_bytes": note.get("tornTailBytes", 0),
        }
    )
    if note.get("tornTailBytes") and not inputs.live:
        run.outcome.add_finding(Finding.of(Code.TORN_LOG_TAIL, f"voter {state.name}", size=note["tornTailBytes"]))
    if inputs.voters[index].mirrored:
        inputs.leader_epoch = inputs.leader_epoch if inputs.leader_epoch is not None else note.get("epoch")
        run.outcome.leader_note = note
