"""A quorum that is lost for good: a majority of the controllers has lost its volumes, and can elect no leader. Pure.

The operator never ends this by itself. It says what each way out would lose, and waits for the user's word:

1. ``spec.restoreControllersFrom`` starts all voters from one kept copy of the metadata log.
   Changes after the copy are lost.
2. ``spec.target: ZooKeeper`` with ``spec.rollback.acceptLoss`` returns to ZooKeeper without the controllers.
   What ZooKeeper does not know is lost.

A quorum that merely does not answer is not lost: its volumes hold the log.
Whoever knows that a volume is destroyed deletes its claim.

Notes
-----
Measured on Kafka 3.9 (``tests/integration/test_lost_quorum.py``): voters that begin with the same log and a higher
epoch elect a leader; brokers and ZooKeeper accept it because of its epoch. A KRaft broker whose own copy of the log is
longer ends with ``The leader requested truncation to offset …, which is below the current high watermark``, and starts
with the restored log. The new active controller writes its image to ZooKeeper.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from kraftbridge.models.catalogue import Code
from kraftbridge.models.conditions import Reason, Status
from kraftbridge.models.decision import (
    EventReason,
    EventType,
    RestartPod,
)
from kraftbridge.models.observation import (
    MigrationZnode,
    PodState,
    QuorumState,
    Unobserved,
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
    ZooKeeperBehind,
    finding,
    tuned_controllers,
)
from kraftbridge.phases import belongings, claims, history, keeping, observed, verifying
from kraftbridge.phases.draft import SLOW, Draft, StepContext, Wait, for_user
from kraftbridge.phases.nodes import converging
from kraftbridge.phases.nodes.converging import Pace
from kraftbridge.phases.observed import because, broker_pods

ASKED_FOR: Final = timedelta(minutes=10)
"""Deadline for restored voters to elect a leader."""
EPOCHS_BEYOND: Final = 1_000
"""By how much the restored first epoch exceeds every epoch that was seen: dying voters held unseen elections."""
HEARD_FOR: Final = timedelta(seconds=20)
"""How long brokers get to follow the restored quorum. They fetch its log every half second."""
BROKER_GRACE_SECONDS: Final = 20
"""Grace period of a broker that does not follow the quorum: nobody answers its controlled shutdown."""
RECENT: Final = timedelta(minutes=5)
"""How old a forecast may be when somebody acts on it."""
_NAMED: Final = 3


def lost_voters(step: StepContext) -> tuple[int, ...] | None:
    """Return the voters that lost their recorded claims if they are a majority, else nothing; None while not known."""
    controllers = step.status.controllers
    workload = step.observation.controllers
    if controllers is None or controllers.format_allowed:
        return ()
    if isinstance(workload, Unobserved) or workload.claims is None:
        return None
    lost = tuple(sorted(claims.lost_claims(controllers, workload)))
    return lost if 2 * len(lost) > len(controllers.node_ids) else ()


def is_under_way(status: MigrationStatus) -> bool:
    """Return whether the voters are being restored from a copy."""
    return _restoration_under_way(status) is not None


def _restoration_under_way(status: MigrationStatus) -> Restoration | None:
    current = observed.of_attempt(status, status.restoration)
    if current is None or current.finished_at is not None:
        return None
    return current


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
    is_known = lost is not None and lost.behind is not None
    return is_known and step.status.phase is Phase.ROLLING_BACK and step.spec.rollback.accept_loss


def enforce(draft: Draft) -> Wait | None:
    """Return the wait while the quorum is lost or restored, None otherwise and for a rollback that does without it."""
    controllers = draft.status.controllers
    if controllers is None or belongings.wanted(draft.status.phase, draft.status) is None:
        return None
    restoration = _restoration_under_way(draft.status)
    if restoration is not None:
        return _follow(draft, controllers, restoration)
    voters = lost_voters(draft)
    if voters is None:
        if draft.status.lost_quorum is None:
            return None
        # What was seen holds until something else is seen.
        return Wait(f"the quorum is lost, and its claims were not read: {draft.observation.controllers}")
    if not voters:
        _forget(draft)
        return None
    lost = _record_loss(draft, voters)
    if len(voters) < len(controllers.node_ids):
        # The voter that is left may have more of the log than the copy of the last gate.
        run_id = f"voters-left-{draft.status.attempt}-{lost.seen_at:%Y%m%dT%H%M%SZ}"
        waiting = keeping.ensure_kept(draft, run_id)
        if waiting is not None:
            return waiting
    lost = _keep_what_zookeeper_lacks(draft, lost)
    kept = draft.status.kept_copy
    if kept is not None and kept.id and draft.spec.restore_controllers_from == kept.id:
        return _begin(draft, controllers, kept)
    in_zookeeper = draft.status.phase.row.migrates
    if draft.spec.target is Target.ZOOKEEPER and draft.spec.rollback.accept_loss and in_zookeeper:
        is_known = lost.behind is not None and draft.now - lost.behind.read_at <= RECENT
        if is_known or not history.copied(draft.status):
            return None
        behind = draft.observation.behind
        return Wait(f"before the rollback without the controllers: what ZooKeeper lacks is being read: {behind}")
    lost = _keep_forecast(draft, lost, kept)
    return _record_ways_out(draft, lost, kept)


def _record_loss(draft: Draft, voters: tuple[int, ...]) -> LostQuorum:
    """Record which voters are lost, and report it once."""
    lost = draft.status.lost_quorum
    if lost is not None and lost.voters == voters:
        return lost
    if lost is None:
        message = f"Controllers {', '.join(map(str, voters))} have lost their volumes: the quorum is lost"
        draft.tell(EventReason.ALARM, message, EventType.WARNING)
    lost = LostQuorum(seen_at=draft.now, voters=voters)
    draft.update(lost_quorum=lost)
    return lost


def _record_ways_out(draft: Draft, lost: LostQuorum, kept: KeptCopy | None) -> Wait:
    """Return the wait for the user's word, with what each way out loses."""
    word = draft.spec.restore_controllers_from
    controllers = draft.status.controllers
    refused = ""
    if word and (kept is None or word != kept.id):
        refused = f" spec.restoreControllersFrom names {word}, which is not the kept copy."
    quorum_lost = finding(
        Code.QUORUM_LOST,
        "controllers",
        voters=", ".join(map(str, lost.voters)),
        of=0 if controllers is None else len(controllers.node_ids),
        way_one=_way_one(lost, kept),
        way_two=_way_two(draft, lost),
    )
    draft.set_findings(Code.QUORUM_LOST, quorum_lost)
    return for_user(f"{quorum_lost.reason}.{refused} {quorum_lost.fix}", Reason.QUORUM_LOST)


def _way_one(lost: LostQuorum, kept: KeptCopy | None) -> str:
    if kept is None:
        return "No copy of the metadata log was kept, so the controllers cannot be restored."
    loss = "What it loses is being compared."
    if lost.forecast:
        loss = f"It loses {lost.forecast}."
    return (
        f"spec.restoreControllersFrom: {kept.id} restores all controllers from the copy of "
        f"{kept.taken_at:%Y-%m-%d %H:%M} UTC. {loss}"
    )


def _way_two(step: StepContext, lost: LostQuorum) -> str:
    if not step.status.phase.row.migrates:
        return "ZooKeeper does not have the metadata any more, so there is no other way."
    contradiction = history.contradicts(step)
    if contradiction is not None:
        return f"There is no way back to ZooKeeper: {contradiction.what}."
    if lost.behind is None:
        behind = step.observation.behind
        because = f" ({behind})" if isinstance(behind, Unobserved) else ""
        return f"What a return to ZooKeeper loses is being read{because}."
    return (
        "spec.target: ZooKeeper with spec.rollback.acceptLoss: true returns to ZooKeeper without the controllers. "
        f"It loses {described(lost.behind)}{_unmirrored(step)}. {_offline_meanwhile(step)}"
    )


def described(behind: ZooKeeperBehind) -> str:
    """Return what a return to ZooKeeper loses, as the end of a sentence."""
    losses = []
    if behind.partitions:
        names = _some(behind.partition_names, behind.partitions)
        losses.append(f"records of {behind.partitions} partition(s) whose leader changed since ({names})")
    if behind.topics:
        losses.append(f"{behind.topics} topic(s) that ZooKeeper lacks ({_some(behind.topic_names, behind.topics)})")
    if behind.deleted_topics:
        names = _some(behind.deleted_topic_names, behind.deleted_topics)
        losses.append(f"the deletion of {behind.deleted_topics} topic(s) ({names})")
    topics = ", ".join(losses) or "no topic and no partition"
    unasked = ""
    if behind.silent:
        silent = ", ".join(map(str, behind.silent))
        unasked = f", and what broker {silent} alone knows, which did not answer"
    return f"{topics}, and changes of configs, quotas, ACLs and credentials that ZooKeeper lacks{unasked}"


def _unmirrored(step: StepContext) -> str:
    """Return how far the log was ahead of ZooKeeper: a change that no broker has heard of shows in nothing else."""
    quorum = step.status.quorum
    zookeeper = step.observation.zookeeper
    if quorum is None or quorum.high_watermark is None:
        return ""
    if isinstance(zookeeper, Unobserved) or not isinstance(zookeeper.migration, MigrationZnode):
        return ""
    ahead = int(quorum.high_watermark) - 1 - zookeeper.migration.kraft_metadata_offset
    return f" (the log was {max(ahead, 0)} records ahead of ZooKeeper when it was last seen)"


def _offline_meanwhile(step: StepContext) -> str:
    sets = step.stateful_sets()
    if isinstance(sets, Unobserved):
        return "Brokers in KRaft mode restart all at once."
    pods = broker_pods(step)
    on_kraft = sum(BrokerMode.of(pod.configuration).is_of_kraft for pod in pods)
    if not on_kraft:
        return "The brokers serve meanwhile, and restart one at a time."
    return (
        f"{on_kraft} of {len(pods)} brokers run in KRaft mode and restart all at once: "
        "partitions with their replicas there are offline until they are back."
    )


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
    if isinstance(behind, Unobserved):
        return lost
    return _record_changes(draft, lost, behind=behind)


def _keep_forecast(draft: Draft, lost: LostQuorum, kept: KeptCopy | None) -> LostQuorum:
    """Record what a restoration from the kept copy would lose: ZooKeeper tells it as long as it mirrors the log."""
    if kept is None:
        return lost
    if not draft.status.phase.row.migrates or not history.copied(draft.status):
        return _record_changes(draft, lost, forecast="every change of the metadata since then", forecast_run="")
    record = verifying.ensure_forecast(draft, draft.status.phase, kept.id)
    if record is None:
        return _record_changes(draft, lost, forecast="", forecast_run="")
    return _record_changes(draft, lost, forecast=_loss_of(record), forecast_run=record.run_id)


def _record_changes(draft: Draft, lost: LostQuorum, **changes: object) -> LostQuorum:
    changed = lost.model_copy(update=changes)
    if changed == lost:
        return lost
    draft.update(lost_quorum=changed)
    return changed


def _loss_of(record: VerificationStatus) -> str:
    """Return what the comparison of ZooKeeper with the copy says, as the end of a sentence."""
    since = "and what was changed since the copy and is not in ZooKeeper either"
    match record.verdict:
        case Verdict.CONSISTENT:
            return f"nothing that ZooKeeper has (verification {record.run_id}), {since}"
        case Verdict.INCONSISTENT:
            return (
                f"or takes back {record.differing} entities that ZooKeeper has "
                f"(ConfigMap {record.report} names them), {since}"
            )
        case Verdict.INCONCLUSIVE | None:
            return f"every change of the metadata since then; how many could not be compared ({record.reason})"


# ----------------------------------------------------------------------------------------- restoration


def _begin(draft: Draft, controllers: ControllersStatus, kept: KeptCopy) -> Wait:
    """Record the restoration and render it; the controllers restart in the next step."""
    epoch = _highest_epoch(draft.status, kept) + EPOCHS_BEYOND
    rendered = controllers.rendered or RenderedControllers.of(
        tuned_controllers(draft.spec, draft.status), None, draft.spec.pods, draft.status.broker_settings
    )
    rendered = rendered.model_copy(update={"restored": RestoredLog.of(kept, epoch)})
    draft.update(
        restoration=Restoration(
            attempt=draft.status.attempt, copy_id=kept.id, end_offset=kept.end_offset, epoch=epoch, began_at=draft.now
        ),
        controllers=controllers.model_copy(update={"rendered": rendered, "change": None}),
        operation=None,
    )
    converging.configure_controllers(draft)
    draft.tell(
        EventReason.CONTROLLERS_CHANGING, f"Restoring all controllers from the kept copy {kept.id}, at epoch {epoch}"
    )
    return Wait(f"all controllers are being restored from the kept copy {kept.id}")


def _highest_epoch(status: MigrationStatus, kept: KeptCopy) -> int:
    """Return the highest epoch of the quorum that was seen."""
    epochs = [kept.epoch]
    if status.quorum is not None and status.quorum.leader_epoch is not None:
        epochs.append(status.quorum.leader_epoch)
    past = status.zookeeper_history
    if past is not None:
        epochs += [past.kraft_epoch, past.claim_epoch, past.controller_epoch]
    if status.restoration is not None:
        epochs.append(status.restoration.epoch)
    return max(epochs)


def _follow(draft: Draft, controllers: ControllersStatus, current: Restoration) -> Wait:
    """Restart every controller from the copy, all at once, until they have a leader."""
    waiting = _take_next_step(draft, controllers, current)
    if waiting is None:
        return _finish(draft, controllers, draft.status.restoration or current)
    message = f"restoration of the controllers from the kept copy {current.copy_id}: {waiting}"
    if draft.now - current.began_at <= ASKED_FOR:
        return Wait(message)
    message = (
        f"{message}, for {ASKED_FOR.seconds // 60} minutes. "
        "Read the logs of the init container `restore` and of the controllers"
    )
    return Wait(message, reason=Reason.DEADLINE_EXCEEDED, stalled=True, requeue_after=SLOW)


def _take_next_step(draft: Draft, controllers: ControllersStatus, current: Restoration) -> str | None:
    """Take the next step of the restoration; return what it waits for, None once the restored voters have a leader."""
    workload = draft.observation.controllers
    if isinstance(workload, Unobserved):
        return str(workload)
    stateful_set = workload.stateful_set
    if stateful_set is None or workload.missing:
        converging.configure_controllers(draft)
        return f"their objects are being created again{because(draft.failure())}"
    if (lack := converging.reconcile_controllers(draft, Pace.ALL)) is not None:
        return f"{lack.words}{because(draft.failure())}"
    if down := observed.down(stateful_set.pods):
        return down[0]
    if len(stateful_set.pods) != len(controllers.node_ids):
        return f"{len(stateful_set.pods)} of {len(controllers.node_ids)} pods exist"
    if set(workload.claims or ()) != set(controllers.node_ids):
        return "the claims of their volumes are not all there"
    quorum = draft.observation.quorum
    if isinstance(quorum, Unobserved):
        return f"they elect a leader ({quorum})"
    if quorum.leader_epoch < current.epoch or quorum.high_watermark <= int(current.end_offset):
        return f"they elect a leader (epoch {quorum.leader_epoch}, the high watermark is {quorum.high_watermark})"
    led_at = current.led_at
    if led_at is None:
        led_at = draft.now
        draft.update(restoration=current.model_copy(update={"led_at": led_at}))
    deaf = _deaf_brokers(draft, quorum, led_at)
    for pod in deaf or ():
        node_id = draft.status.broker_ids[pod.name]
        draft.act(RestartPod(pod.name, pod.uid, node_id, BROKER_GRACE_SECONDS, ready=False))
    if deaf == []:
        return None
    return "the brokers follow the new leader, and those that do not restart"


def _deaf_brokers(step: StepContext, quorum: QuorumState, led_at: datetime) -> list[PodState] | None:
    """Return the brokers that run since before the restoration and do not follow the restored quorum.

    Return None while that is not known. The part of a broker that reads the metadata log ends where the new log is
    shorter than its own copy. A broker in KRaft mode ends with it. One in migration mode goes on without, does not
    register any more, and its partitions stay without a leader.
    """
    if isinstance(step.stateful_sets(), Unobserved) or step.now - led_at < HEARD_FOR:
        return None
    ids = step.status.broker_ids
    pods = [pod for pod in broker_pods(step) if pod.configuration and pod.name in ids and not pod.deleting]
    since_before = [pod for pod in pods if pod.seen_since is not None and pod.seen_since < led_at]
    return [pod for pod in since_before if ids[pod.name] not in quorum.observers]


def _finish(draft: Draft, controllers: ControllersStatus, current: Restoration) -> Wait:
    workload = draft.observation.controllers
    claims = None if isinstance(workload, Unobserved) else workload.claims
    uids = {str(node_id): uid for node_id, uid in (claims or {}).items()}
    _forget(draft)
    draft.set_findings(Code.CONTROLLER_CLAIMS_LOST)
    draft.update(
        controllers=controllers.model_copy(update={"volume_uids": uids}),
        restoration=current.model_copy(update={"finished_at": draft.now}),
        # Offsets of the log that is gone say nothing about this one.
        migration_offset=None,
        quorum=None,
    )
    draft.tell(
        EventReason.CONTROLLERS_CHANGED,
        f"All controllers run from the kept copy {current.copy_id}: "
        f"the metadata log goes on after offset {current.end_offset}",
    )
    return Wait(f"all controllers were restored from the kept copy {current.copy_id}", requeue_after=timedelta(0))
