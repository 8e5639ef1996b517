"""One run: read the places, compare them, settle what is in flight, and say what came out."""

from __future__ import annotations

import logging
import re
from collections import Counter
from datetime import UTC, datetime

from pyspark.sql import DataFrame

from kraftbridge.metadata.errors import MetadataError
from kraftbridge.models.catalogue import Severity
from kraftbridge.models.report import Difference, KindCounts, Profile, VerificationReport
from kraftbridge.verification.compare.differences import difference_of_flagged
from kraftbridge.verification.compare.mirror import check_fence, compare_mirror
from kraftbridge.verification.compare.places import MAXIMUM_FLAGGED, compare
from kraftbridge.verification.compare.served import compare_served
from kraftbridge.verification.readings import check_tree, read_logs, read_zookeeper
from kraftbridge.verification.run import Run
from kraftbridge.verification.sources.rows import Leg, voter_place
from kraftbridge.verification.verdict import conclude

logger = logging.getLogger(__name__)


def run_report(run: Run) -> VerificationReport:
    """Run, and return the report; what goes wrong in the data's places is in it."""
    started = datetime.now(UTC)
    try:
        _verify(run)
    except MetadataError as error:
        run.outcome.problems.append(str(error))
    except Exception as error:  # whatever happened, the answer is that nothing is known
        logger.exception("run %s broke off", run.request.run_id)
        run.outcome.problems.append(failure_reason(error))
    finally:
        run.release()
    return _report(run, started)


def _verify(run: Run) -> None:
    if run.inputs.profile is Profile.ZOOKEEPER:
        check_tree(run)
        return
    zookeeper = read_zookeeper(run) if run.inputs.profile is Profile.DUAL_WRITE else None
    logs = read_logs(run)
    if run.outcome.problems:
        return
    if run.inputs.profile is Profile.DUAL_WRITE:
        assert zookeeper is not None
        check_fence(run)
        with run.stage("compare zookeeper"):
            compare_mirror(run, zookeeper.unionAll(logs))
    if len(run.inputs.voters) > 1 or run.inputs.profile is Profile.REPLICAS:
        with run.stage("compare voters"):
            _compare_voters(run, logs)
    if run.inputs.brokers:
        compare_served(run, logs)


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
    beyond = sum(comparison.flagged_counts.values()) - len(comparison.flagged)
    if beyond:
        run.outcome.add_uncounted(beyond, f"more than {MAXIMUM_FLAGGED} entities differ between voters")
    for flagged in comparison.flagged:
        run.outcome.add_difference(difference_of_flagged(flagged, places))


def _report(run: Run, started: datetime) -> VerificationReport:
    request, inputs, outcome = run.request, run.inputs, run.outcome
    outcome.note_passwords(inputs, request)
    verdict, reason = conclude(outcome, inputs)
    differing = Counter(difference.kind for difference in outcome.differences.values())
    counts = {
        kind: counts.model_copy(update={"differing": differing.get(kind, 0)})
        for kind, counts in ({kind: KindCounts() for kind in differing} | outcome.counts).items()
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
        problems=[*outcome.problems, *outcome.unreadable.values()][:limit],
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
    """Return what a failed Spark job was about: the source's own error where one is in its trace."""
    own = re.findall(r"kraftbridge\.[\w.]+Error: (.+)", str(error))
    return (
        own[-1].strip() if own else f"the run broke off: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
    )
