"""A quorum that is lost for good: a majority of the controllers has lost its volumes, so no leader can be elected again. Pure.

The operator never ends this by itself. It says what each way out would lose, and waits for the user's word:

1. ``spec.restoreControllersFrom`` starts all voters from one kept copy of the metadata log. Changes after the copy are lost.
2. ``spec.target: ZooKeeper`` with ``spec.rollback.acceptLoss`` returns to ZooKeeper without the controllers. What ZooKeeper does not know is lost.

A quorum that merely does not answer is not lost: its volumes hold the log. Whoever knows that a volume is destroyed deletes its claim.

Notes
-----
Measured on Kafka 3.9 (``tests/integration/test_lost_quorum.py``): voters that begin with the same log and a higher epoch elect a leader; brokers and
ZooKeeper accept it because of its epoch. A KRaft broker whose own copy of the log is longer ends with ``The leader requested truncation to offset …,
which is below the current high watermark``, and starts with the restored log. The new active controller writes its image to ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from kraftbridge.models.catalogue import Code
from kraftbridge.models.conditions import Reason, Status
from kraftbridge.models.decision import (
    AT_ONCE_SECONDS,
    ApplyControllers,
    EventReason,
    EventType,
    RestartPod,
)
from kraftbridge.models.observation import (
    ControllersWorkload,
    MigrationZnode,
    PodState,
    QuorumState,
    StatefulSetState,
    Unobserved,
    ZooKeeperState,
)
from kraftbridge.models.phase import BrokerMode, Phase, Target
from kraftbridge.models.report import Verdict
from kraftbridge.models.status import (
    ControllersStatus,
    KeptCopy,
    LostQuorum,
    MigrationStatus,
    RenderedControllers,
    Restoration,
    RestoredLog,
    VerificationStatus,
    WaitKind,
    ZooKeeperBehind,
    finding,
    tuned_controllers,
)
from kraftbridge.phases import belongings, history, keeping, verifying
from kraftbridge.phases.draft import SLOW, Draft, StepContext, Wait
from kraftbridge.phases.nodes import brokers

ASKED_FOR: Final = timedelta(minutes=10)
"""Deadline for restored voters to elect a leader."""
EPOCHS_BEYOND: Final = 1_000
"""By how much the restored voters' first epoch exceeds every epoch that was seen. Voters that were dying held elections that nobody saw."""
HEARD_FOR: Final = timedelta(seconds=20)
"""How long brokers get to follow the restored quorum. They fetch its log every half second."""
BROKER_GRACE_SECONDS: Final = 20
"""Grace period of a broker that does not follow the quorum: nobody answers its controlled shutdown."""
RECENT: Final = timedelta(minutes=5)
"""How old a forecast may be when somebody acts on it."""
_NAMED: Final = 3
_IN_ZOOKEEPER: Final = frozenset({Phase.TAKING_OVER, Phase.DUAL_WRITE, Phase.ROLLING_BROKERS, Phase.AWAITING_FINALIZATION, Phase.ROLLING_BACK})  # fmt: skip
"""Phases in which ZooKeeper mirrors the log."""


def lost_voters(step: StepContext) -> tuple[int, ...] | None:
    """Return the voters whose recorded claims are gone or exchanged if they are a majority, else nothing; None while the claims are not known."""
    known, workload = step.status.controllers, step.observation.controllers
    if known is None or known.format_allowed:
        return ()
    if not isinstance(workload, ControllersWorkload) or workload.claims is None:
        return None
    lost = tuple(sorted(belongings.lost_claims(known, workload)))
    return lost if 2 * len(lost) > len(known.node_ids) else ()


def is_under_way(status: MigrationStatus) -> bool:
    """Return whether the voters are being restored from a copy."""
    current = status.restoration
    return current is not None and current.attempt == status.attempt and current.finished_at is None


def possible(step: StepContext) -> tuple[Status, Reason, str] | None:
    """Return status, reason and message of ``RollbackPossible`` while the quorum is lost, None otherwise."""
    lost = step.status.lost_quorum
    if lost is None:
        return None
    return (
        "False",
        Reason.QUORUM_LOST,
        f"The quorum is lost, so ZooKeeper cannot get every change. {_way_two(step, lost)}",
    )


def may_go_back_without(step: StepContext) -> bool:
    """Return whether the user gives up the quorum, and ZooKeeper can take its place."""
    lost = step.status.lost_quorum
    return (
        lost is not None
        and lost.behind is not None
        and step.status.phase is Phase.ROLLING_BACK
        and step.spec.rollback.accept_loss
    )


def enforce(draft: Draft) -> Wait | None:
    """Return the wait while the quorum is lost, or while it is restored; None otherwise, and for a rollback that does without it."""
    known = draft.status.controllers
    if known is None or belongings.wanted(draft.status.phase, draft.status) is None:
        return None
    if is_under_way(draft.status) and draft.status.restoration is not None:
        return _follow(draft, known, draft.status.restoration)
    voters = lost_voters(draft)
    lost = draft.status.lost_quorum
    if voters is None:
        if lost is None:
            return None
        # What was seen holds until something else is seen.
        return Wait(f"the quorum is lost, and its claims were not read: {draft.observation.controllers}")
    if not voters:
        _forget(draft)
        return None
    if lost is None or lost.voters != voters:
        if lost is None:
            words = ", ".join(map(str, voters))
            draft.tell(
                EventReason.ALARM, f"Controllers {words} have lost their volumes: the quorum is lost", EventType.WARNING
            )
        lost = LostQuorum(seen_at=draft.now, voters=voters)
        draft.update(lost_quorum=lost)
    if len(voters) < len(known.node_ids):
        # The voter that is left may have more of the log than the copy of the last gate.
        waiting = keeping.ensure_kept(draft, f"voters-left-{draft.status.attempt}-{lost.seen_at:%Y%m%dT%H%M%SZ}")
        if waiting is not None:
            return waiting
    lost = _keep_what_zookeeper_lacks(draft, lost)
    word, kept = draft.spec.restore_controllers_from, draft.status.kept_copy
    if word and kept is not None and word == kept.id:
        return _begin(draft, known, kept)
    in_zookeeper = draft.status.phase in _IN_ZOOKEEPER
    if draft.spec.target is Target.ZOOKEEPER and draft.spec.rollback.accept_loss and in_zookeeper:
        is_known = lost.behind is not None and draft.now - lost.behind.read_at <= RECENT
        if is_known or not history.copied(draft.status):
            return None
        return Wait(
            f"before the rollback without the controllers: what ZooKeeper lacks is being read: {draft.observation.behind}"
        )
    lost = _keep_forecast(draft, lost, kept)
    return _record_ways_out(draft, lost, kept)


def _record_ways_out(draft: Draft, lost: LostQuorum, kept: KeptCopy | None) -> Wait:
    """Return the wait for the user's word, with what each way out loses."""
    word = draft.spec.restore_controllers_from
    refused = ""
    if word and (kept is None or word != kept.id):
        refused = f" spec.restoreControllersFrom names {word}, which is not the kept copy."
    made = finding(
        Code.QUORUM_LOST,
        "controllers",
        voters=", ".join(map(str, lost.voters)),
        of=len(draft.status.controllers.node_ids if draft.status.controllers is not None else ()),
        way_one=_way_one(lost, kept),
        way_two=_way_two(draft, lost),
    )
    draft.set_findings(Code.QUORUM_LOST, made)
    message = f"{made.reason}.{refused} {made.fix}"
    return Wait(message, WaitKind.USER, Reason.QUORUM_LOST, stalled=True, requeue_after=SLOW)


def _way_one(lost: LostQuorum, kept: KeptCopy | None) -> str:
    if kept is None:
        return "No copy of the metadata log was kept, so the controllers cannot be restored."
    loses = f" It loses {lost.forecast}." if lost.forecast else " What it loses is being compared."
    return f"spec.restoreControllersFrom: {kept.id} restores all controllers from the copy of {kept.taken_at:%Y-%m-%d %H:%M} UTC.{loses}"


def _way_two(step: StepContext, lost: LostQuorum) -> str:
    if step.status.phase not in _IN_ZOOKEEPER:
        return "ZooKeeper does not have the metadata any more, so there is no other way."
    if (found := history.contradicts(step)) is not None:
        return f"There is no way back to ZooKeeper: {found.what}."
    if lost.behind is None:
        return f"What a return to ZooKeeper loses is being read ({step.observation.behind})."
    return (
        "spec.target: ZooKeeper with spec.rollback.acceptLoss: true returns to ZooKeeper without the controllers. "
        f"It loses {described(lost.behind)}{_unmirrored(step)}. {_offline_meanwhile(step)}"
    )


def described(behind: ZooKeeperBehind) -> str:
    """Return what a return to ZooKeeper loses, as the end of a sentence."""
    found = []
    if behind.partitions:
        found.append(
            f"records of {behind.partitions} partition(s) whose leader changed since ({_some(behind.partition_names, behind.partitions)})"
        )
    if behind.topics:
        found.append(f"{behind.topics} topic(s) that ZooKeeper lacks ({_some(behind.topic_names, behind.topics)})")
    if behind.deleted_topics:
        found.append(
            f"the deletion of {behind.deleted_topics} topic(s) ({_some(behind.deleted_topic_names, behind.deleted_topics)})"
        )
    topics = ", ".join(found) or "no topic and no partition"
    unasked = ""
    if behind.silent:
        unasked = f", and what broker {', '.join(map(str, behind.silent))} alone knows, which did not answer"
    return f"{topics}, and changes of configs, quotas, ACLs and credentials that ZooKeeper lacks{unasked}"


def _unmirrored(step: StepContext) -> str:
    """Return how far the log was ahead of ZooKeeper when it was last seen: a change that no broker has heard of shows in nothing else."""
    quorum, zookeeper = step.status.quorum, step.observation.zookeeper
    migration = zookeeper.migration if isinstance(zookeeper, ZooKeeperState) else None
    if quorum is None or quorum.high_watermark is None or not isinstance(migration, MigrationZnode):
        return ""
    ahead = int(quorum.high_watermark) - 1 - migration.kraft_metadata_offset
    return f" (the log was {max(ahead, 0)} records ahead of ZooKeeper when it was last seen)"


def _offline_meanwhile(step: StepContext) -> str:
    sets = step.stateful_sets()
    if isinstance(sets, Unobserved):
        return "Brokers in KRaft mode restart all at once."
    on_kraft = sum(p.configuration.startswith(BrokerMode.KRAFT) for s in sets for p in s.pods)
    total = sum(len(s.pods) for s in sets)
    if not on_kraft:
        return "The brokers serve meanwhile, and restart one at a time."
    return f"{on_kraft} of {total} brokers run in KRaft mode and restart all at once: partitions with their replicas there are offline until they are back."


def _some(names: tuple[str, ...], total: int) -> str:
    shown = ", ".join(names[:_NAMED])
    return f"{shown} and {total - _NAMED} more" if total > _NAMED else shown


def _forget(draft: Draft) -> None:
    """Remove what was recorded of a loss that is mended: the volumes are there again."""
    if draft.status.lost_quorum is None:
        return
    draft.set_findings(Code.QUORUM_LOST)
    draft.update(lost_quorum=None)


# ------------------------------------------------------------------------------------------- forecasts


def _keep_what_zookeeper_lacks(draft: Draft, lost: LostQuorum) -> LostQuorum:
    """Record what a return to ZooKeeper would lose, as it was read last."""
    behind = draft.observation.behind
    if not isinstance(behind, ZooKeeperBehind) or behind == lost.behind:
        return lost
    known = lost.model_copy(update={"behind": behind})
    draft.update(lost_quorum=known)
    return known


def _keep_forecast(draft: Draft, lost: LostQuorum, kept: KeptCopy | None) -> LostQuorum:
    """Record what a restoration from the kept copy would lose: compared with ZooKeeper as long as that mirrors the log."""
    if kept is None:
        return lost
    words = "every change of the metadata since then"
    run_id = ""
    if draft.status.phase in _IN_ZOOKEEPER and history.copied(draft.status):
        record = verifying.ensure_forecast(draft, draft.status.phase, kept.id)
        words = "" if record is None else _loss_of(record)
        run_id = "" if record is None else record.run_id
    known = lost.model_copy(update={"forecast": words, "forecast_run": run_id})
    if known != lost:
        draft.update(lost_quorum=known)
    return known


def _loss_of(record: VerificationStatus) -> str:
    """Return what the comparison of ZooKeeper with the copy says, as the end of a sentence."""
    since = "and what was changed since the copy and is not in ZooKeeper either"
    match record.verdict:
        case Verdict.CONSISTENT:
            return f"nothing that ZooKeeper has (verification {record.run_id}), {since}"
        case Verdict.INCONSISTENT:
            return f"or takes back {record.differing} entities that ZooKeeper has (ConfigMap {record.report} names them), {since}"
        case Verdict.INCONCLUSIVE | None:
            return f"every change of the metadata since then; how many could not be compared ({record.reason})"


# ----------------------------------------------------------------------------------------- restoration


def _begin(draft: Draft, known: ControllersStatus, kept: KeptCopy) -> Wait:
    """Record the restoration and render it; the controllers restart in the next step."""
    quorum, past = draft.status.quorum, draft.status.zookeeper_history
    seen = [kept.epoch]
    if quorum is not None and quorum.leader_epoch is not None:
        seen.append(quorum.leader_epoch)
    if past is not None:
        seen += [past.kraft_epoch, past.claim_epoch, past.controller_epoch]
    if draft.status.restoration is not None:
        seen.append(draft.status.restoration.epoch)
    epoch = max(seen) + EPOCHS_BEYOND
    source = RestoredLog.of(kept, epoch)
    rendered = known.rendered or RenderedControllers.of(
        tuned_controllers(draft.spec, draft.status), None, draft.spec.pods, draft.status.broker_settings
    )
    draft.update(
        restoration=Restoration(
            attempt=draft.status.attempt, copy_id=kept.id, end_offset=kept.end_offset, epoch=epoch, began_at=draft.now
        ),
        controllers=known.model_copy(
            update={"rendered": rendered.model_copy(update={"restored": source}), "change": None}
        ),
        operation=None,
    )
    draft.act(ApplyControllers(known.mode, format_allowed=False))
    draft.tell(
        EventReason.CONTROLLERS_CHANGING, f"Restoring all controllers from the kept copy {kept.id}, at epoch {epoch}"
    )
    return Wait(f"all controllers are being restored from the kept copy {kept.id}")


def _follow(draft: Draft, known: ControllersStatus, current: Restoration) -> Wait:
    """Restart every controller from the copy, all at once, until they have a leader."""
    waiting = _take_next_step(draft, known, current)
    if waiting is None:
        return _finish(draft, known, draft.status.restoration or current)
    if draft.now - current.began_at <= ASKED_FOR:
        return Wait(waiting)
    message = f"{waiting}, for {ASKED_FOR.seconds // 60} minutes. Read the logs of the init container `restore` and of the controllers"
    return Wait(message, reason=Reason.DEADLINE_EXCEEDED, stalled=True, requeue_after=SLOW)


def _take_next_step(draft: Draft, known: ControllersStatus, current: Restoration) -> str | None:
    """Take the next step of the restoration; return what it waits for, None once the restored voters have a leader."""
    workload, quorum = draft.observation.controllers, draft.observation.quorum
    about = f"restoration of the controllers from the kept copy {current.copy_id}"
    if isinstance(workload, Unobserved):
        return f"{about}: {workload}"
    stateful_set = workload.stateful_set
    if stateful_set is None or workload.missing or stateful_set.drift or not stateful_set.observed:
        draft.act(ApplyControllers(known.mode, format_allowed=False))
        because = f": {draft.failure()}" if draft.failure() else ""
        return f"{about}: its objects are being applied{because}"
    if (pods := _outdated(stateful_set)) is not None:
        for name, uid, ordinal in pods:
            draft.act(RestartPod(name, uid, ordinal, AT_ONCE_SECONDS, ready=False))
        return f"{about}: all controllers restart"
    down = [p.down for p in stateful_set.pods if p.down]
    if down or len(stateful_set.pods) != len(known.node_ids):
        return f"{about}: {down[0] if down else f'{len(stateful_set.pods)} of {len(known.node_ids)} pods exist'}"
    claims = workload.claims
    if claims is None or set(claims) != set(known.node_ids):
        return f"{about}: the claims of their volumes are not all there"
    if not isinstance(quorum, QuorumState):
        return f"{about}: they elect a leader ({quorum})"
    if quorum.leader_epoch < current.epoch or quorum.high_watermark <= int(current.end_offset):
        return (
            f"{about}: they elect a leader (epoch {quorum.leader_epoch}, the high watermark is {quorum.high_watermark})"
        )
    if current.led_at is None:
        current = current.model_copy(update={"led_at": draft.now})
        draft.update(restoration=current)
    deaf = _deaf_brokers(draft, quorum, current.led_at or draft.now)
    if deaf is None or deaf:
        for pod in deaf or ():
            node_id = draft.status.broker_ids[pod.name]
            draft.act(RestartPod(pod.name, pod.uid, node_id, BROKER_GRACE_SECONDS, ready=False))
        return f"{about}: the brokers follow the new leader, and those that do not restart"
    return None


def _deaf_brokers(step: StepContext, quorum: QuorumState, led_at: datetime) -> list[PodState] | None:
    """Return the brokers that run since before the restoration and do not follow the restored quorum; None while that is not known.

    The part of a broker that reads the metadata log ends where the new log is shorter than its own copy. A broker in KRaft mode ends with it. One in migration
    mode goes on without, does not register any more, and its partitions stay without a leader.
    """
    sets = step.stateful_sets()
    if isinstance(sets, Unobserved) or step.now - led_at < HEARD_FOR:
        return None
    pods = [pod for item in sets for pod in item.pods if pod.configuration and pod.name in step.status.broker_ids]
    since_before = [pod for pod in pods if not pod.deleting and pod.seen_since is not None and pod.seen_since < led_at]
    return [pod for pod in since_before if step.status.broker_ids[pod.name] not in quorum.observers]


def _outdated(stateful_set: StatefulSetState) -> list[tuple[str, str, int]] | None:
    """Return the pods that do not start from the copy, None when there are none; those that stop already are not asked again."""
    found = [p for p in stateful_set.pods if brokers.is_outdated(stateful_set, p)]
    return [(p.name, p.uid, p.ordinal) for p in found if not p.deleting] if found else None


def _finish(draft: Draft, known: ControllersStatus, current: Restoration) -> Wait:
    workload = draft.observation.controllers
    claims: Mapping[int, str] = (workload.claims or {}) if isinstance(workload, ControllersWorkload) else {}
    uids = {str(node_id): uid for node_id, uid in claims.items()}
    _forget(draft)
    draft.set_findings(Code.CONTROLLER_CLAIMS_LOST)
    draft.update(
        controllers=known.model_copy(update={"volume_uids": uids}),
        restoration=current.model_copy(update={"finished_at": draft.now}),
        # Offsets of the log that is gone say nothing about this one.
        migration_offset=None,
        quorum=None,
    )
    draft.tell(
        EventReason.CONTROLLERS_CHANGED,
        f"All controllers run from the kept copy {current.copy_id}: the metadata log goes on after offset {current.end_offset}",
    )
    return Wait(f"all controllers were restored from the kept copy {current.copy_id}", requeue_after=timedelta(0))
