"""Preflight: judges the cluster and changes nothing. The checks are in `kraftbridge.phases.preflight`. Pure."""

from __future__ import annotations

from hashlib import sha256

from kraftbridge.models.conditions import ConditionType, Reason
from kraftbridge.models.decision import PublishFindings
from kraftbridge.models.observation import Unobserved, ZooKeeperState
from kraftbridge.models.phase import BrokerMode, Phase, Target
from kraftbridge.models.status import (
    UID_LENGTH,
    ControllersStatus,
    FindingsReport,
    FindingStatus,
    NodeStatus,
    WaitKind,
    controllers_name,
)
from kraftbridge.phases import rehearsing
from kraftbridge.phases.draft import SLOW, Draft, Enter, Outcome, Wait, reached
from kraftbridge.phases.preflight import dry_start
from kraftbridge.phases.preflight import findings as preflight
from kraftbridge.phases.preflight.effective import taken_over
from kraftbridge.phases.preflight.rehearsal import CODES as REHEARSAL_CODES

MAXIMUM_FINDINGS = 100
"""Findings in status. One finding takes at most 2 KiB."""


def run_preflight_phase(draft: Draft) -> Outcome:
    """Collect the findings and continue without a blocking one. This phase changes nothing."""
    zookeeper, ids = draft.observation.zookeeper, draft.registered_broker_ids()
    copies_run = False
    if isinstance(zookeeper, ZooKeeperState) and zookeeper.cluster_id and ids and dry_start.awaited(draft):
        dry_start.begin_dry_start(draft, ids, zookeeper.cluster_id)
        copies_run = True
    found = preflight.findings(draft)
    _record_findings(draft, found)
    standing = preflight.blocking(found)
    if standing:
        repeated = None
        if all(f.code in REHEARSAL_CODES for f in standing):
            repeated = rehearsing.ensure_rehearsal(draft, blocking=True)
        first = standing[0]
        message = f"{len(standing)} blocking finding(s); {first.code} on {first.object}: {first.reason}. {first.fix}"
        if copies_run:
            message += f". {dry_start.UNDER_WAY}; more findings may follow"
        draft.set_condition(ConditionType.PREFLIGHT_PASSED, "False", Reason.FINDINGS, message)
        soon = SLOW if repeated is None else repeated.requeue_after
        return Wait(message, WaitKind.USER, Reason.FINDINGS, stalled=True, requeue_after=soon)
    if dry_start.awaited(draft):
        draft.set_condition(ConditionType.PREFLIGHT_PASSED, "False", Reason.PROGRESSING, dry_start.UNDER_WAY)
        return Wait(dry_start.UNDER_WAY)
    survey = draft.observation.survey
    settings = {} if isinstance(survey, Unobserved) else taken_over(survey, draft.observation.dry_start)
    if not isinstance(survey, Unobserved) and draft.status.broker_settings != settings:
        draft.update(broker_settings=settings)
        if draft.spec.rehearsal.enabled:
            return Wait("the settings that the controllers take over from the brokers were recorded")
    if (waiting := rehearsing.ensure_rehearsal(draft, blocking=False)) is not None:
        draft.set_condition(ConditionType.PREFLIGHT_PASSED, "False", Reason.PROGRESSING, waiting.message)
        return waiting
    accepted = sum(f.accepted for f in found)
    draft.set_condition(
        ConditionType.PREFLIGHT_PASSED, "True", Reason.PASSED, f"No blocking finding; {accepted} accepted by the user"
    )
    sets = draft.stateful_sets()
    if not isinstance(zookeeper, ZooKeeperState) or isinstance(sets, Unobserved):
        return Wait("the cluster could not be observed")
    nodes = tuple(
        NodeStatus(
            id=ids[p.name], role="broker", pod=p.name, stateful_set=s.name, mode=BrokerMode.ZOOKEEPER, ready=p.ready
        )
        for s in sets
        for p in s.pods
    )
    draft.update(cluster_id=zookeeper.cluster_id, broker_ids=ids, nodes=tuple(sorted(nodes, key=lambda n: n.id)))
    if draft.spec.target is Target.PREFLIGHT:
        return reached("Preflight passed; set spec.target to QuorumReady or further to continue")
    name = controllers_name(draft.identity.name, draft.identity.uid, draft.status.attempt)
    draft.update(controllers=ControllersStatus(name=name, node_ids=draft.spec.controllers.node_ids))
    return Enter(Phase.PROVISIONING_QUORUM)


def _record_findings(draft: Draft, found: tuple[FindingStatus, ...]) -> None:
    """Record the findings in status; more than `MAXIMUM_FINDINGS` go to a ConfigMap, since etcd refuses objects of more than 1.5 MiB."""
    if len(found) <= MAXIMUM_FINDINGS:
        draft.update(findings=found, findings_report=None)
        return
    digest = sha256("\n".join(f.model_dump_json() for f in found).encode()).hexdigest()
    name = f"{draft.identity.name}-findings-{draft.identity.uid[:UID_LENGTH]}"
    known = draft.status.findings_report
    written = not any(o.action == PublishFindings.__name__ and o.error for o in draft.observation.outcomes)
    if known is None or known.digest != digest or not written:
        draft.act(PublishFindings(name, found))
    draft.update(
        findings=found[:MAXIMUM_FINDINGS],
        findings_report=FindingsReport(config_map=name, total=len(found), digest=digest),
    )
