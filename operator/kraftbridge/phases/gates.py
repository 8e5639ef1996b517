"""Gates. Each function returns the blockers that keep its gate closed; an empty list opens it.

A blocker is text for the status message. A part of the observation that is unknown is a blocker, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from kraftbridge.models.catalogue import Code, Severity
from kraftbridge.models.conditions import Reason
from kraftbridge.models.observation import (
    Clue,
    ClusterState,
    ControllersWorkload,
    MigrationZnode,
    StatefulSetState,
    Unobserved,
    meaning_of,
)
from kraftbridge.models.phase import BrokerMode, ControllerMode, Phase, ZkMigrationState
from kraftbridge.models.status import MigrationStatus, WaitKind
from kraftbridge.phases.draft import StepContext, Wait
from kraftbridge.phases.preflight.findings import blocking, redundancy_findings

LEADER_STABLE_FOR = timedelta(seconds=3)
"""How long the same leader must be observed; an election takes about ``controller.quorum.election.timeout.ms`` (1 s)."""
MAX_LAG_RECORDS = 4
"""The active controller appends a NoOpRecord every 500 ms (``metadata.max.idle.interval.ms``), so followers rarely reach the log end."""
REDUNDANCY_FRESH_FOR = timedelta(seconds=30)
"""Maximum age of the topics' redundancy when a broker is restarted."""
MIRROR_SILENCE = timedelta(seconds=15)
"""The offset in ``/migration`` moves about twice a second; without a move for this long, ZooKeeper does not mirror the log."""

Blockers = list[str]


def cluster_blockers(step: StepContext) -> Blockers:
    """Return why the cluster is not whole, or which brokers are not registered where their mode registers them.

    A broker's Metadata response shows the last update that it received. So the observer asks several brokers, and asks the quorum and ZooKeeper which
    brokers are alive.
    """
    served = _served(step)
    if isinstance(served, Unobserved):
        return [str(served)]
    return [*_service(step, *served), *liveness_blockers(step)]


def service_blockers(step: StepContext) -> Blockers:
    """Every broker's pod is Ready, every ISR is full, every partition has a leader, and all asked brokers serve the same cluster."""
    served = _served(step)
    return [str(served)] if isinstance(served, Unobserved) else _service(step, *served)


def _served(step: StepContext) -> tuple[ClusterState, tuple[StatefulSetState, ...]] | Unobserved:
    """Return the cluster as a broker serves it and the brokers' StatefulSets."""
    cluster, sets = step.observation.cluster, step.stateful_sets()
    if isinstance(cluster, Unobserved):
        return cluster
    return sets if isinstance(sets, Unobserved) else (cluster, sets)


def _service(step: StepContext, cluster: ClusterState, sets: tuple[StatefulSetState, ...]) -> Blockers:
    # Metadata shows a dead broker until its session expires; its pod does not.
    blockers: Blockers = [p.down for s in sets for p in s.pods if p.down]
    expected = frozenset(step.status.broker_ids.values())
    if not expected:
        blockers.append("broker ids are not known yet")
    return [*blockers, *cluster.problems(expected), *_disagreements(step, expected)]


def _disagreements(step: StepContext, expected: frozenset[int]) -> Blockers:
    """Every broker that was asked serves a healthy cluster, and all of them the same one."""
    views = step.observation.cluster_by_broker
    if isinstance(views, Unobserved):
        return [str(views)]
    blockers: Blockers = []
    for broker, view in sorted(views.items()):
        if isinstance(view, Unobserved):
            blockers.append(str(view))
        else:
            blockers += [f"{problem} (as broker {broker} serves it)" for problem in view.problems(expected)]
    seen = {i: v for i, v in sorted(views.items()) if isinstance(v, ClusterState)}
    if len(seen) < min(2, len(expected)):
        blockers.append(f"{len(seen)} broker(s) answered; two must agree")
    if len({(v.brokers, v.partitions) for v in seen.values()}) > 1:
        counts = _list(f"broker {i}: {len(v.brokers)} brokers, {v.partitions} partitions" for i, v in seen.items())
        blockers.append(f"brokers serve different metadata ({counts})")
    return blockers


def liveness_blockers(step: StepContext) -> Blockers:
    """Every broker is registered with its controller: in ZooKeeper (``/brokers/ids``), or in the quorum and unfenced.

    The quorum's state comes from the active controller's gauges ``ActiveBrokerCount`` and ``FencedBrokerCount`` (``ControllerMetricsManager``);
    DescribeCluster lists fenced brokers only since Kafka 4.0 (KIP-1073).
    """
    sets = step.stateful_sets()
    if isinstance(sets, Unobserved):
        return [str(sets)]
    modes = {step.status.broker_ids.get(p.name, -1): BrokerMode.of(p.configuration) for s in sets for p in s.pods}
    blockers: Blockers = []
    zookeeper = step.observation.zookeeper
    if in_zookeeper := {i for i, mode in modes.items() if mode is not BrokerMode.KRAFT}:
        if isinstance(zookeeper, Unobserved):
            blockers.append(str(zookeeper))
        elif missing := sorted(in_zookeeper - {b.id for b in zookeeper.brokers}):
            blockers.append(f"broker {_list(missing)} is not registered in ZooKeeper (/brokers/ids)")
    in_quorum = sum(mode is not BrokerMode.ZOOKEEPER for mode in modes.values())
    if in_quorum and not _quorum_is_stopped(step):
        active = step.observation.active_controller
        if active is None:
            blockers.append("no single active controller answers")
        elif active.fenced_brokers:
            blockers.append(f"{active.fenced_brokers} broker(s) are fenced by the active controller {active.node_id}")
        elif active.active_brokers < in_quorum:
            blockers.append(f"{active.active_brokers} of {in_quorum} brokers are registered and unfenced")
    return blockers


def redundancy_blockers(step: StepContext) -> Blockers:
    """No topic becomes unavailable by a broker's restart, except those that the user accepted in preflight."""
    redundancy = step.observation.redundancy
    if isinstance(redundancy, Unobserved):
        return [str(redundancy)]
    if redundancy.read_at is None or step.now - redundancy.read_at > REDUNDANCY_FRESH_FOR:
        return ["the topics' redundancy is being read again"]
    return [
        f"{f.code} on {f.object}: {f.reason}. {f.fix}" for f in blocking(redundancy_findings(step.spec, redundancy))
    ]


def restart_blockers(step: StepContext) -> Blockers:
    """Return why the next broker must not restart: an unhealthy cluster first, then topics that would become unavailable."""
    return cluster_blockers(step) or redundancy_blockers(step)


def restart_wait(step: StepContext, blockers: Blockers) -> Wait:
    """Return the wait before a broker's restart; it is the user's turn if a topic lacks redundancy."""
    theirs = not cluster_blockers(step) and blockers[0].startswith((Code.TOPIC_NOT_REPLICATED, Code.TOPIC_AT_MIN_ISR))
    message = f"before the next broker restarts: {blockers[0]}"
    if theirs:
        return Wait(message, WaitKind.USER, Reason.FINDINGS, stalled=True)
    return Wait(message)


def controllers_gone(step: StepContext) -> bool:
    """Return whether a stop of this attempt's controllers was recorded, and none of their pods is left.

    An absent StatefulSet alone says nothing: somebody may have deleted it, and its pods may run on.
    """
    workload, rollback = step.observation.controllers, step.status.rollback
    if step.status.controllers is None:
        return True
    recorded = (
        rollback is not None and rollback.attempt == step.status.attempt and rollback.controllers_stopped_at is not None
    )
    if not recorded or not isinstance(workload, ControllersWorkload) or workload.left:
        return False
    # A StatefulSet that is being deleted creates no pods.
    stateful_set = workload.stateful_set
    return stateful_set is None or (stateful_set.deleting and not stateful_set.pods)


def _quorum_is_stopped(step: StepContext) -> bool:
    """Return whether a rollback has stopped this attempt's controllers."""
    status, rollback = step.status, step.status.rollback
    ordered = (
        rollback is not None and rollback.attempt == status.attempt and rollback.controllers_stopped_at is not None
    )
    return status.phase is Phase.ROLLING_BACK and (ordered or status.controllers is None)


def controllers_running_blockers(step: StepContext, mode: ControllerMode, *, newest: bool = True) -> Blockers:
    """Every controller's pod is Ready; with ``newest`` it runs the configuration that its StatefulSet has now."""
    workload = step.observation.controllers
    if isinstance(workload, Unobserved):
        return [str(workload)]
    stateful_set = workload.stateful_set
    if stateful_set is None:
        return ["the controllers' StatefulSet is being created"]
    blockers: Blockers = []
    if not stateful_set.configuration.startswith(f"{mode}-"):
        blockers.append(f"StatefulSet {stateful_set.name} does not render mode {mode} yet")
    pods = {p.ordinal: p for p in stateful_set.pods}
    for node_id in step.spec.controllers.node_ids:
        pod = pods.get(node_id)
        if pod is None:
            blockers.append(f"controller {node_id} has no pod yet")
        elif pod.deleting:
            blockers.append(f"pod {pod.name} is being replaced")
        elif pod.down:
            blockers.append(pod.down)
        elif newest and pod.configuration != stateful_set.configuration:
            blockers.append(f"pod {pod.name} does not run configuration {stateful_set.configuration} yet")
    return blockers


def controller_in_trouble(step: StepContext) -> tuple[str, str]:
    """Return the name of the first controller's pod that cannot run, and the reason; two empty strings when all can run."""
    workload = step.observation.controllers
    if not isinstance(workload, ControllersWorkload) or workload.stateful_set is None:
        return "", ""
    return next(((p.name, p.trouble) for p in workload.stateful_set.pods if p.trouble and not p.ready), ("", ""))


def _controller_trouble(step: StepContext, node_id: int) -> str:
    workload = step.observation.controllers
    if not isinstance(workload, ControllersWorkload) or workload.stateful_set is None:
        return ""
    pods = (p for p in workload.stateful_set.pods if p.ordinal == node_id and not p.ready)
    return next((f"pod {p.name}: {p.trouble or 'not Ready'}" for p in pods), "")


def quorum_blockers(step: StepContext) -> Blockers:
    """Every voter has seen the same leader for some seconds, and no voter lags (DescribeQuorum and each voter's gauges)."""
    quorum = step.observation.quorum
    if isinstance(quorum, Unobserved):
        return [str(quorum)]
    blockers: Blockers = []
    wanted = set(step.spec.controllers.node_ids)
    if {v.id for v in quorum.voters} != wanted:
        blockers.append(
            f"the quorum's voters are {_list(sorted(v.id for v in quorum.voters))}, not {_list(sorted(wanted))}"
        )
    if quorum.max_lag_records is None:
        blockers.append("a voter has not fetched from the leader yet")
    elif quorum.max_lag_records > MAX_LAG_RECORDS:
        blockers.append(f"the slowest voter is {quorum.max_lag_records} records behind")
    active = 0
    for node_id in sorted(wanted):
        metrics = step.observation.metrics.get(
            node_id, Unobserved(f"controller {node_id}", "its metrics were not read")
        )
        if isinstance(metrics, Unobserved):
            trouble = _controller_trouble(step, node_id)
            blockers.append(f"{metrics}; {trouble}" if trouble else str(metrics))
            continue
        active += metrics.active
        if (metrics.leader_id, metrics.leader_epoch) != (quorum.leader_id, quorum.leader_epoch):
            blockers.append(
                f"controller {node_id} sees leader {metrics.leader_id} in epoch {metrics.leader_epoch}, not {quorum.leader_id} in {quorum.leader_epoch}"
            )
    if not blockers and active != 1:
        blockers.append(f"{active} controllers report that they are active; exactly one must")
    seen = step.status.quorum
    if (
        seen is None
        or seen.leader_id != quorum.leader_id
        or seen.leader_since is None
        or step.now - seen.leader_since < LEADER_STABLE_FOR
    ):
        blockers.append(f"leader {quorum.leader_id} has not led for {LEADER_STABLE_FOR.seconds} s yet")
    return blockers


def voter_registration_blockers(step: StepContext) -> Blockers:
    """Every voter is registered with the active controller; the migration driver waits for that (``QuorumFeatures``, KIP-866)."""
    registered = step.observation.registered_controllers
    if isinstance(registered, Unobserved):
        return [str(registered)]
    missing = sorted(set(step.spec.controllers.node_ids) - registered)
    return [f"controller {_list(missing)} follows the leader but has not registered with it"] if missing else []


def volume_blockers(step: StepContext) -> Blockers:
    """Every controller's volume is recorded, and the start script does not format blank volumes any more."""
    status, workload = step.status.controllers, step.observation.controllers
    if status is None or not isinstance(workload, ControllersWorkload):
        return [str(workload)]
    if status.format_allowed:
        return ["the controllers' volumes are not all bound yet"]
    if workload.format_allowed is not False:
        return ["the controllers' ConfigMap still allows a blank volume to be formatted"]
    return []


def migration_state_blockers(step: StepContext, state: ZkMigrationState) -> Blockers:
    """Every voter reports ``state`` (gauge ``ZkMigrationState``)."""
    blockers: Blockers = []
    for node_id in step.spec.controllers.node_ids:
        metrics = step.observation.metrics.get(
            node_id, Unobserved(f"controller {node_id}", "its metrics were not read")
        )
        if isinstance(metrics, Unobserved):
            blockers.append(str(metrics))
        elif metrics.zk_migration_state is not state:
            blockers.append(f"controller {node_id} is in migration state {metrics.zk_migration_state}, not {state}")
    return blockers


def broker_registration_blockers(step: StepContext) -> Blockers:
    """Every broker is registered with the quorum as a KRaft broker and unfenced."""
    total = len(step.status.broker_ids)
    active = step.observation.active_controller
    if active is None:
        return ["no single active controller answers"]
    blockers: Blockers = []
    if active.migrating_zk_brokers:
        blockers.append(f"{active.migrating_zk_brokers} broker(s) are still registered as ZooKeeper brokers")
    if active.active_brokers != total:
        blockers.append(f"{active.active_brokers} of {total} brokers are registered and unfenced")
    if active.fenced_brokers:
        blockers.append(f"{active.fenced_brokers} broker(s) are fenced")
    return blockers


def dual_write_blockers(step: StepContext) -> Blockers:
    """ZooKeeper receives the KRaft controller's changes now.

    The driver writes ``ZkMigrationState`` before it reaches DUAL_WRITE (``KRaftMigrationDriver``). So the gate also needs the claim on
    ``/controller`` and a growing offset in ``/migration``.
    """
    zookeeper, active = step.observation.zookeeper, step.observation.active_controller
    if isinstance(zookeeper, Unobserved):
        return [str(zookeeper)]
    if active is None:
        return ["no single active controller answers"]
    blockers: Blockers = []
    if active.zk_migration_state is not ZkMigrationState.MIGRATION:
        blockers.append(
            f"the active controller {active.node_id} is in migration state {active.zk_migration_state}, not MIGRATION"
        )
    if zookeeper.controller is None or zookeeper.controller.broker_id not in step.spec.controllers.node_ids:
        blockers.append("the KRaft quorum has not claimed /controller yet")
    migration = zookeeper.migration
    if not isinstance(migration, MigrationZnode):
        blockers.append("/migration is missing" if migration is None else str(migration))
    elif migration.kraft_metadata_offset < 0:
        blockers.append("the copy to KRaft is not complete (/migration has no offset yet)")
    elif not mirrors(step):
        blockers.append(f"the offset in /migration stays at {migration.kraft_metadata_offset}; it must grow")
    return blockers


def mirrors(step: StepContext) -> bool:
    """Return whether the offset in ``/migration`` has grown within `MIRROR_SILENCE`."""
    offset = step.status.migration_offset
    return offset is not None and offset.moved_at is not None and step.now - offset.moved_at < MIRROR_SILENCE


def views_of_cluster(step: StepContext) -> list[ClusterState]:
    """Return the cluster as each broker that answered serves it; empty if no broker was asked."""
    views = step.observation.cluster_by_broker
    if isinstance(views, Unobserved):
        return []
    return [v for v in (step.observation.cluster, *views.values()) if isinstance(v, ClusterState)]


def all_serve(step: StepContext, broker_ids: frozenset[int]) -> bool:
    """Return whether every broker that answered lists all of ``broker_ids``."""
    views = views_of_cluster(step)
    return bool(views) and all(broker_ids <= v.brokers for v in views)


def _list(items: object) -> str:
    return ", ".join(str(i) for i in items)  # type: ignore[attr-defined]


LOOK_INTO_LOGS_AFTER = timedelta(seconds=60)
"""Logs are read after this time without progress: longer than a broker's restart, much shorter than any deadline."""
MOST_NODES = 3


def is_slow(status: MigrationStatus, now: datetime) -> bool:
    """Return whether a phase that waits for nobody has made no progress for `LOOK_INTO_LOGS_AFTER`."""
    working = status.waiting is None or status.waiting.kind in (WaitKind.WORK, WaitKind.VERIFICATION)
    return (
        working
        and not status.phase.at_rest
        and status.progress_at is not None
        and now - status.progress_at > LOOK_INTO_LOGS_AFTER
    )


def explained(step: StepContext, waiting: Wait) -> Wait:
    """Return the wait with the first controller that is down, with what keeps pods from being created and, after a while, with the meaning and fix of log lines."""
    pod, trouble = controller_in_trouble(step)
    if pod and pod not in waiting.message:
        waiting = replace(waiting, message=f"{waiting.message}. Down: pod {pod}: {trouble}")
    for refusal in _refused_pods(step):
        waiting = replace(waiting, message=f"{waiting.message}. {refusal}")
    clues = step.observation.clues
    if isinstance(clues, Unobserved) or not clues or waiting.kind is WaitKind.USER:
        return waiting
    telling = {node: found for node, found in clues.items() if any(c.code is not Code.DRIVER_STATE for c in found)}
    spoken = telling or clues
    words = "; ".join(f"{node}: {_sentence(found)}" for node, found in sorted(spoken.items())[:MOST_NODES])
    return replace(waiting, message=f"{waiting.message}. Logs: {words}")


def _refused_pods(step: StepContext) -> Iterator[str]:
    for item in step.observation.seen_sets:
        if item.pods_refused:
            yield (
                f"StatefulSet {item.name} lacks a pod: {item.pods_refused}. "
                "Change the quota, policy or webhook that refuses it; its controller tries again by itself"
            )


def _sentence(found: tuple[Clue, ...]) -> str:
    first = found[0]
    state = next((c for c in found[1:] if c.code is Code.DRIVER_STATE), None)
    parts = [meaning_of(first), *([meaning_of(state)] if state is not None else [])]
    fix = "" if first.code.severity is Severity.INFORMATION else f" ({first.code.fix})"
    return ", ".join(parts) + fix
