"""Runs a verification, at once or when the operator releases it, and writes the report."""

from __future__ import annotations

import json
import logging
import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from kraftbridge.exceptions import MetadataError
from kraftbridge.metadata.entities import PASSWORD_LENGTH_PREFIX
from kraftbridge.metadata.zookeeper.reader import ZooKeeperReader
from kraftbridge.metadata.zookeeper.soundness import Soundness
from kraftbridge.metadata.zookeeper.standing import may_pass, standing
from kraftbridge.models.catalogue import Code, Severity
from kraftbridge.models.entities import EntityKind, KindCounts
from kraftbridge.models.phase import Phase
from kraftbridge.models.report import (
    CompareServed,
    Difference,
    Fence,
    Finding,
    Profile,
    Verdict,
    VerificationReport,
    VerificationRequest,
    VoterState,
    ZooKeeperAccess,
)
from kraftbridge.verification.compare.mirror import check_fence, compare_copy, compare_mirror
from kraftbridge.verification.compare.places import MAXIMUM_FLAGGED, compare
from kraftbridge.verification.compare.served import compare_with_log
from kraftbridge.verification.compare.upgrade import compare_with_tree
from kraftbridge.verification.configmap import RunConfigMap
from kraftbridge.verification.inputs import Inputs, live_inputs
from kraftbridge.verification.run import (
    Run,
    conclude,
    difference_of_flagged,
    notes_among,
    open_session,
    set_shuffle_size,
    warm_up,
)
from kraftbridge.verification.sources.rows import ZOOKEEPER, Leg, LogPlan, Note, ZooKeeperPlan, voter_place
from kraftbridge.verification.watch import keep_tree

logger = logging.getLogger(__name__)

_VOTER_PATIENCE_SECONDS: Final = 15.0
"""Time for a voter to reach the committed offset. A healthy voter fetches within milliseconds."""
_FEW_ROWS: Final = 50_000


def _zookeeper_plan(run: Run, *, soundness: bool) -> ZooKeeperPlan:
    place = run.inputs.zookeeper
    access = None
    dump = None
    chroot = ""
    if isinstance(place, ZooKeeperAccess):
        access = place
    elif place is not None:
        dump = str(place.path.resolve())
        chroot = place.chroot
    return ZooKeeperPlan(
        salt=run.salt.hex(),
        encoder_secret_path=run.inputs.encoder_secret_path,
        dump_key_path=run.inputs.dump_key_path,
        access=access,
        dump=dump,
        chroot=chroot,
        soundness=soundness,
        served=bool(run.inputs.brokers) and run.inputs.profile is Profile.UPGRADE,
        copied=run.inputs.profile is Profile.COPY,
        parallelism=max(2, run.session.sparkContext.defaultParallelism),
    )


def check_tree(run: Run) -> None:
    """Read ZooKeeper's tree and check that it is sound."""
    with run.stage("read zookeeper"):
        frame = run.load("zookeeper", _zookeeper_plan(run, soundness=True).model_dump_json())
        notes = notes_among(frame)
    soundness = Soundness()
    findings: list[Finding] = []
    for note in notes:
        match note["kind"]:
            case Note.FINDING:
                findings.append(Finding.model_validate(json.loads(note["value"])))
            case Note.UNREAD:
                run.outcome.unread[note["key"]] = json.loads(note["value"])
            case Note.PROBLEM if note["key"] != "/migration":
                soundness.undecodable(note["key"], json.loads(note["value"]))
    facts = _contents(notes, Note.COUNT)
    highest = max((fact["highestEpoch"] for fact in facts), default=-1)
    controller_epochs = [fact["controllerEpoch"] for fact in facts if fact["controllerEpoch"] is not None]
    soundness.same_ids(_topics_of_shared_ids(frame))
    soundness.epochs(next(iter(controller_epochs), None), highest)
    left = _standing(run, [*findings, *soundness.findings], highest)
    for finding in left:
        run.outcome.add_finding(finding)
    # One of each place is among those that were read again.
    still_stands = any(map(may_pass, left))
    for fact in facts:
        run.outcome.add_dropped_findings(fact["dropped"])
        if still_stands:
            run.outcome.add_dropped_findings(fact["droppedThatMayPass"])
    _take_fence(run, notes)
    _count_tree(run, frame)


def _count_tree(run: Run, tree: DataFrame) -> int:
    """Count what the tree holds, and return the sum. A tree without metadata is the wrong one."""
    with run.stage("count"):
        comparison = compare(tree, Leg.MIRROR, [ZOOKEEPER])
    run.count(comparison, {ZOOKEEPER: "zookeeper"})
    for flagged in comparison.flagged:
        run.outcome.add_difference(difference_of_flagged(flagged, [ZOOKEEPER]))
    rows = comparison.rows_in(ZOOKEEPER)
    if not rows:
        run.outcome.problems.append("ZooKeeper holds no metadata of Kafka below this chroot")
    return rows


@dataclass(frozen=True, slots=True)
class _ReadingAgain:
    """The inputs of the task that reads again what a change in progress may explain."""

    access: ZooKeeperAccess
    findings: Sequence[Finding]
    highest_epoch: int

    def run(self) -> list[Finding]:
        """Return the findings that stand."""
        with ZooKeeperReader(self.access) as reader:
            return standing(reader, self.findings, self.highest_epoch)


def _standing(run: Run, findings: Sequence[Finding], highest_epoch: int) -> Sequence[Finding]:
    """Return the findings that stand; all of them where the tree is a dump, which cannot be read again."""
    access = run.inputs.zookeeper
    if not isinstance(access, ZooKeeperAccess) or not any(map(may_pass, findings)):
        return findings
    with run.stage("read again"):
        return run.in_task(_ReadingAgain.run, _ReadingAgain(access, findings, highest_epoch))


def _topics_of_shared_ids(frame: DataFrame) -> dict[str, list[str]]:
    """Return the topics that share an id. Each task sees only some of the topics."""
    topics = frame.where((F.col("leg") == str(Leg.MIRROR)) & (F.col("kind") == EntityKind.TOPIC.value))
    shared = topics.groupBy("value").agg(F.sort_array(F.collect_set("key")).alias("names")).where(F.size("names") > 1)
    names_by_id = {json.loads(row["value"])["topicId"]: list(row["names"]) for row in shared.collect()}
    names_by_id.pop(None, None)
    return names_by_id


def _contents(notes: Iterable[Any], kind: Note) -> list[Any]:
    """Return what the notes of one kind say."""
    return [json.loads(note["value"]) for note in notes if note["kind"] == kind]


def read_zookeeper(run: Run) -> DataFrame:
    """Return ZooKeeper's rows, and record the mirrored offset and the znodes that could not be decoded."""
    with run.stage("read zookeeper"):
        frame = run.load("zookeeper", _zookeeper_plan(run, soundness=False).model_dump_json())
        notes = notes_among(frame)
    for note in notes:
        content = json.loads(note["value"])
        match note["kind"]:
            case Note.PROBLEM:
                run.outcome.unreadable[note["key"]] = content
            case Note.UNREAD:
                run.outcome.unread[note["key"]] = content
            case Note.ALTERNATIVE:
                kind, value = content
                run.outcome.alternatives[EntityKind(kind), note["key"]] = value
            case Note.CLUSTER:
                run.outcome.cluster_id = content
            case EntityKind.BROKER_CONFIG:
                names = (name for name, value in content.items() if value.startswith(PASSWORD_LENGTH_PREFIX))
                run.outcome.passwords += (f"broker {note['key']}: {name}" for name in names)
            case _:
                pass  # the fence
    run.outcome.claim = next(iter(_contents(notes, Note.CLAIM)), {})
    _take_fence(run, notes)
    return frame


def _take_fence(run: Run, notes: Sequence[Any]) -> None:
    fences = _contents(notes, Note.FENCE)
    if fences:
        run.fence = Fence(
            first_offset=min(fence["first"] for fence in fences),
            last_offset=max(fence["last"] for fence in fences),
            epoch=max(fence["epoch"] for fence in fences),
            controller_id=fences[-1]["controllerId"],
            batches=sum(fence["batches"] for fence in fences),
        )


def read_logs(run: Run) -> DataFrame:
    """Return the voters' rows, and record the end of each log."""
    inputs = run.inputs
    first = run.fence.first_offset
    if inputs.profile is Profile.DUAL_WRITE and (first is None or first < 0):
        run.outcome.problems.append(
            "ZooKeeper mirrors no log: /migration is absent or contains no offset; the cluster is not in dual-write"
        )
    several = len(inputs.voters) > 1
    plan = LogPlan(
        salt=run.salt.hex(),
        encoder_secret_path=inputs.encoder_secret_path,
        dump_key_path=inputs.dump_key_path,
        voters=inputs.voters,
        token_path=inputs.token_path,
        ca_path=inputs.ca_path,
        replicas_offset=inputs.replicas_offset if several else None,
        fence_offset=first,
        at_fence=not inputs.live and inputs.profile is Profile.DUAL_WRITE,
        copied=inputs.profile is Profile.COPY,
        served=bool(inputs.brokers),
        brokers_restart=run.request.phase == Phase.ROLLING_BROKERS,
        patience_seconds=_VOTER_PATIENCE_SECONDS if inputs.live else 0.0,
    )
    with run.stage("read logs"):
        frame = run.load("kraft-log", plan.model_dump_json())
        notes = {int(note["key"]): json.loads(note["value"]) for note in notes_among(frame) if note["kind"] == Note.LOG}
    clusters = {note["cluster"] for note in notes.values() if note.get("cluster")}
    if len(clusters) > 1:
        run.outcome.problems.append(f"the voters' logs are of different clusters: {', '.join(sorted(clusters))}")
    records = 0
    for index, state in enumerate(inputs.states):
        note = notes.get(state.id, {"problem": f"nothing was read of voter {state.name}'s log"})
        if note["problem"]:
            run.outcome.problems.append(f"voter {state.name}: {note['problem']}")
        run.outcome.voter_notes.append(note)
        _take_voter(run, index, state, note)
        records += note.get("records") or 0
    run.few = records < _FEW_ROWS
    set_shuffle_size(run.session, records)
    return frame


def _take_voter(run: Run, index: int, state: VoterState, note: dict[str, Any]) -> None:
    inputs = run.inputs
    end_offset = state.end_offset
    if end_offset is None:  # offline it is known, and this replay stopped at the last offset that all logs contain
        end_offset = note.get("endOffset")
    inputs.states[index] = state.model_copy(
        update={
            "end_offset": end_offset,
            "snapshot_offset": note.get("snapshotOffset"),
            "records": note.get("records"),
            "problem": note["problem"],
            "torn_tail_bytes": note.get("tornTailBytes", 0),
        }
    )
    if note.get("tornTailBytes") and not inputs.live:
        run.outcome.add_finding(Finding.of(Code.TORN_LOG_TAIL, f"voter {state.name}", size=note["tornTailBytes"]))
    if inputs.voters[index].mirrored:
        run.outcome.leader_note = note
        if inputs.leader_epoch is None:
            inputs.leader_epoch = note.get("epoch")


def run_report(run: Run) -> VerificationReport:
    """Execute the run and return its report, which includes errors of the places."""
    started = datetime.now(UTC)
    try:
        _verify(run)
    except MetadataError as error:
        run.outcome.problems.append(str(error))
    except Exception as error:  # any failure means an unknown result
        logger.exception("run %s broke off", run.request.run_id)
        run.outcome.problems.append(failure_reason(error))
    finally:
        run.release()
    return _report(run, started)


def _verify(run: Run) -> None:
    run.outcome.problems += run.inputs.problems
    match run.inputs.profile:
        case Profile.ZOOKEEPER:
            check_tree(run)
        case Profile.UPGRADE:
            _check_brokers_on_zookeeper(run)
        case Profile.DUAL_WRITE | Profile.COPY | Profile.REPLICAS:
            _compare_logs(run)


def _compare_logs(run: Run) -> None:
    mirrored = run.inputs.profile in {Profile.DUAL_WRITE, Profile.COPY}
    zookeeper = read_zookeeper(run) if mirrored else None
    logs = read_logs(run)
    if run.outcome.problems:
        return
    if run.inputs.profile is Profile.DUAL_WRITE:
        assert zookeeper is not None
        check_fence(run)
        with run.stage("compare zookeeper"):
            compare_mirror(run, zookeeper.unionAll(logs))
        if run.outcome.cluster_id is None:
            run.outcome.problems.append(
                "/cluster/id is missing or not JSON with an id: ZooKeeper does not say whose it is"
            )
    if run.inputs.profile is Profile.COPY:
        assert zookeeper is not None
        with run.stage("compare copy"):
            compare_copy(run, zookeeper.unionAll(logs))
    if len(run.inputs.voters) > 1 or run.inputs.profile is Profile.REPLICAS:
        with run.stage("compare voters"):
            _compare_voters(run, logs)
    if run.inputs.brokers:
        compare_with_log(run, logs)
    elif run.inputs.brokers_unknown is not None:
        run.outcome.add_finding(Finding.of(Code.SERVED_NOT_COMPARED, "brokers", reason=run.inputs.brokers_unknown))


def _check_brokers_on_zookeeper(run: Run) -> None:
    """Read ZooKeeper's tree, and compare it with what every broker serves."""
    tree = read_zookeeper(run)
    rows = _count_tree(run, tree)
    run.few = rows < _FEW_ROWS
    set_shuffle_size(run.session, rows)
    if run.request.compare_served is not CompareServed.NEVER:
        compare_with_tree(run, tree)


def _compare_voters(run: Run, logs: DataFrame) -> None:
    places = [voter_place(voter.id) for voter in run.inputs.voters]
    comparison = compare(logs, Leg.REPLICAS, places, few=run.few)
    for voter in run.inputs.voters:
        if not comparison.rows_in(voter_place(voter.id)):
            run.outcome.problems.append(f"voter {voter.name}: its image at the compared offset is empty")
    if len(places) == 1:
        run.outcome.problems.append("only one voter's log was given: there is nothing to compare it with")
    if run.inputs.profile is Profile.REPLICAS:
        run.count(comparison, {places[0]: "log"})
    else:
        run.count(comparison, {}, only_new=True)
    if comparison.beyond:
        run.outcome.add_uncounted(comparison.beyond, f"more than {MAXIMUM_FLAGGED} entities differ between voters")
    for flagged in comparison.flagged:
        run.outcome.add_difference(difference_of_flagged(flagged, places))


def _report(run: Run, started: datetime) -> VerificationReport:
    request = run.request
    inputs = run.inputs
    outcome = run.outcome
    outcome.note_passwords(inputs, request)
    verdict, reason = conclude(outcome, inputs)
    differing = Counter(difference.kind for difference in outcome.differences.values())
    counts = {
        kind: outcome.counts.get(kind, KindCounts()).model_copy(update={"differing": differing[kind]})
        for kind in differing.keys() | outcome.counts.keys()
    }
    findings = sorted(outcome.findings, key=lambda finding: (finding.severity is not Severity.BLOCKING, finding.code))
    differences: list[Difference] = list(outcome.differences.values())
    limit = request.sample_limit
    return VerificationReport(
        run_id=request.run_id,
        migration_uid=request.migration_uid,
        generation=request.generation,
        phase=request.phase,
        profile=request.profile,
        verdict=verdict,
        reason=reason,
        counts=dict(sorted(counts.items())),
        differing=len(differences) + outcome.uncounted,
        differences=differences[:limit],
        findings_total=sum(outcome.finding_counts.values()),
        blocking_findings_total=outcome.finding_counts[Severity.BLOCKING],
        findings=findings[:limit],
        problems=[*outcome.problems, *outcome.unread.values(), *outcome.unreadable.values()][:limit],
        fence=run.fence if inputs.zookeeper is not None else None,
        compared_offset=inputs.replicas_offset,
        high_watermark=inputs.high_watermark,
        leader_id=inputs.leader_id,
        leader_epoch=inputs.leader_epoch,
        voters=inputs.states,
        started_at=started,
        finished_at=datetime.now(UTC),
        timings_seconds=run.timings,
    )


def failure_reason(error: Exception) -> str:
    """Return the cause of a failed Spark job: the data source's own error if the trace contains one."""
    own = re.findall(r"kraftbridge\.[\w.]+Error: (.+)", str(error))
    if own:
        return str(own[-1]).strip()
    return f"the run broke off: {type(error).__name__}: {' '.join(str(error).split())[:300]}"


def verify(session: SparkSession, request: VerificationRequest, inputs: Inputs) -> VerificationReport:
    """Return the report of one run."""
    return run_report(Run(session, request, inputs))


def verify_live(session: SparkSession, request: VerificationRequest) -> VerificationReport:
    """Return the report on a live cluster; a place that cannot be reached makes it `Inconclusive`."""
    started = datetime.now(UTC)
    began = time.monotonic()
    try:
        inputs = live_inputs(request)
    except MetadataError as error:
        return VerificationReport(
            run_id=request.run_id,
            migration_uid=request.migration_uid,
            generation=request.generation,
            phase=request.phase,
            profile=request.profile,
            verdict=Verdict.INCONCLUSIVE,
            reason=str(error),
            problems=[str(error)],
            started_at=started,
            finished_at=datetime.now(UTC),
        )
    run = Run(session, request, inputs)
    run.timings["ask quorum"] = round(time.monotonic() - began, 3)
    return run_report(run)


def immediate_run(request: VerificationRequest, master: str | None = None) -> VerificationReport:
    """Open a session and verify."""
    return verify_live(open_session(local=True, master=master), request)


def armed_run(config_map: RunConfigMap, master: str | None = None, request_digest: str = "") -> VerificationReport:
    """Open a session, wait until the operator releases the run, verify, and write the verdict into the ConfigMap.

    The session is warmed up in the meantime, unless the release is already there.

    A run of profile `copy` watches the tree first.
    It announces itself when the tree from before the takeover is kept,
    and opens its session once a KRaft controller has claimed ZooKeeper.
    It keeps its report beside the tree.

    Raises
    ------
    NotWantedError
        The release did not come in time.
    """
    request = config_map.request(request_digest)
    tree = keep_tree(config_map, request) if request.profile is Profile.COPY else None
    session = open_session(local=True, master=master)
    if config_map.go(request.run_id) is None:  # otherwise the gate is waiting
        warm_up(session)
    if tree is None:
        config_map.announce(request.run_id)
    logger.info("run %s is armed: waiting for its go", request.run_id)
    go = config_map.await_go(request.run_id, request.armed_deadline_seconds)
    logger.info("go for run %s, given at %s", go.run_id, go.at)
    report = verify_live(session, request)
    if tree is not None:
        tree.with_name("report.json").write_text(report.to_json(indent=2) + "\n", encoding="utf-8")
    config_map.publish(report)
    return report
