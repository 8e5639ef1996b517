"""Gates. Each function returns the blockers that keep its gate closed; an empty list opens it.

A blocker is text for the status message. A part of the observation that is unknown is a blocker, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from kraftbridge.models.catalogue import Code, Severity
from kraftbridge.models.conditions import Reason
from kraftbridge.models.observation import (
    Clue,
    ClusterState,
    ControllerMetrics,
    ControllersWorkload,
    MigrationZnode,
    PodState,
    QuorumState,
    Unobserved,
    meaning_of,
)
from kraftbridge.models.phase import BrokerMode, ControllerMode, Phase, ZkMigrationState
from kraftbridge.models.pod_problem import PodProblem
from kraftbridge.models.status import MigrationStatus, WaitKind
from kraftbridge.phases import presented
from kraftbridge.phases.draft import StepContext, Wait
from kraftbridge.phases.observed import (
    age,
    brokers_of,
    controller_pod,
    controller_znode,
    controllers_pods,
    down,
    rollback_record,
    without_agent,
)
from kraftbridge.phases.preflight.findings import blocking, redundancy_findings

LEADER_STABLE_FOR = timedelta(seconds=3)
"""How long the same leader must be observed.
An election takes about ``controller.quorum.election.timeout.ms`` (1 s)."""
MAX_LAG_RECORDS = 4
"""Followers rarely reach the log end: the active controller appends a NoOpRecord every 500 ms
(``metadata.max.idle.interval.ms``)."""
MOST_SILENT_SECONDS = 3.0
"""A follower fetches again within 500 ms (``KafkaRaftClient.MAX_FETCH_WAIT_MS``)."""
REDUNDANCY_FRESH_FOR = timedelta(seconds=30)
"""Maximum age of the topics' redundancy when a broker is restarted."""
MIRROR_SILENCE = timedelta(seconds=15)
"""The offset in ``/migration`` moves about twice a second.
Without a move for this long, ZooKeeper does not mirror the log."""
NO_ACTIVE_CONTROLLER = "no single active controller answers"

Blockers = list[str]


def failed(*checks: tuple[object, str]) -> Blockers:
    """Return the messages of the checks that fail: those whose first part is true."""
    return [message for fails, message in checks if fails]


def cluster_blockers(step: StepContext) -> Blockers:
    """Return why the cluster is not whole, or which brokers are not registered where their mode registers them.

    A broker's Metadata response shows the last update that it received.
    So the observer asks several brokers, and asks the quorum and ZooKeeper which brokers are alive.
    """
    served = _served(step)
    if isinstance(served, Unobserved):
        return [str(served)]
    return [*_service(step, served), *liveness_blockers(step)]


def service_blockers(step: StepContext) -> Blockers:
    """Every broker's pod is Ready, every ISR is full, every partition has a leader.

    All asked brokers serve the same cluster.
    """
    served = _served(step)
    if isinstance(served, Unobserved):
        return [str(served)]
    return _service(step, served)


def leader_blockers(step: StepContext) -> Blockers:
    """Every partition has a leader."""
    cluster = step.observation.cluster
    if isinstance(cluster, Unobserved):
        return [str(cluster)]
    return cluster.problems(frozenset())[:1] if cluster.offline_count else []


def _served(step: StepContext) -> ClusterState | Unobserved:
    """Return the cluster as a broker serves it; the brokers' StatefulSets must be observed, too."""
    cluster = step.observation.cluster
    sets = step.stateful_sets()
    if isinstance(sets, Unobserved) and isinstance(cluster, ClusterState):
        return sets
    return cluster


def _service(step: StepContext, cluster: ClusterState) -> Blockers:
    expected = frozenset(step.status.broker_ids.values())
    return [
        # Metadata shows a dead broker until its session expires; its pod does not.
        *down(pod for _, pod in brokers_of(step)),
        *failed((not expected, "broker ids are not known yet")),
        *cluster.problems(expected),
        *_disagreements(step, expected),
    ]


def _disagreements(step: StepContext, expected: frozenset[int]) -> Blockers:
    """Every broker that was asked serves a healthy cluster, and all of them the same one."""
    views = step.observation.cluster_by_broker
    if isinstance(views, Unobserved):
        return [str(views)]
    blockers: Blockers = []
    answers: dict[int, ClusterState] = {}
    for broker_id, view in sorted(views.items()):
        if isinstance(view, Unobserved):
            blockers.append(str(view))
            continue
        answers[broker_id] = view
        blockers += [f"{problem} (as broker {broker_id} serves it)" for problem in view.problems(expected)]
    counts = _list(f"broker {i}: {len(v.brokers)} brokers, {v.partitions} partitions" for i, v in answers.items())
    different = {(view.brokers, view.partitions) for view in answers.values()}
    return blockers + failed(
        (len(answers) < min(2, len(expected)), f"{len(answers)} broker(s) answered; two must agree"),
        (len(different) > 1, f"brokers serve different metadata ({counts})"),
    )


def liveness_blockers(step: StepContext, away: frozenset[int] = frozenset()) -> Blockers:
    """Every broker is registered with its controller: in ZooKeeper (``/brokers/ids``), or in the quorum and unfenced.

    The quorum's state comes from the active controller's gauges ``ActiveBrokerCount`` and ``FencedBrokerCount``
    (``ControllerMetricsManager``); DescribeCluster lists fenced brokers only since Kafka 4.0 (KIP-1073).

    Parameters
    ----------
    step
        The step.
    away
        Brokers that are down by us.
    """
    sets = step.stateful_sets()
    if isinstance(sets, Unobserved):
        return [str(sets)]
    broker_ids = step.status.broker_ids
    modes = {broker_ids.get(pod.name, -1): BrokerMode.of(pod.configuration) for _, pod in brokers_of(step)}
    modes = {broker_id: mode for broker_id, mode in modes.items() if broker_id not in away}
    in_zookeeper = {broker_id for broker_id, mode in modes.items() if not mode.is_of_kraft}
    in_quorum = sum(mode.registers for mode in modes.values())
    return [*_zookeeper_liveness(step, in_zookeeper), *_quorum_liveness(step, in_quorum, len(away))]


def _zookeeper_liveness(step: StepContext, broker_ids: set[int]) -> Blockers:
    zookeeper = step.observation.zookeeper
    if not broker_ids:
        return []
    if isinstance(zookeeper, Unobserved):
        return [str(zookeeper)]
    missing = sorted(broker_ids - {broker.id for broker in zookeeper.brokers})
    return failed((missing, f"broker {_list(missing)} is not registered in ZooKeeper (/brokers/ids)"))


def _quorum_liveness(step: StepContext, brokers: int, away: int) -> Blockers:
    active = step.observation.active_controller
    if not brokers or _quorum_is_stopped(step):
        return []
    if active is None:
        return [NO_ACTIVE_CONTROLLER]
    fenced = active.fenced_brokers
    unfenced = active.active_brokers
    return failed(
        (fenced > away, f"{fenced} broker(s) are fenced by the active controller {active.node_id}"),
        (unfenced < brokers, f"{unfenced} of {brokers} brokers are registered and unfenced"),
    )[:1]


def redundancy_blockers(step: StepContext) -> Blockers:
    """No topic becomes unavailable by a broker's restart, except those that the user accepted in preflight."""
    redundancy = step.observation.redundancy
    if isinstance(redundancy, Unobserved):
        return [str(redundancy)]
    if redundancy.read_at is None or step.now - redundancy.read_at > REDUNDANCY_FRESH_FOR:
        return ["the topics' redundancy is being read again"]
    findings = blocking(redundancy_findings(step.spec, redundancy))
    return [finding.sentence for finding in findings]


def restart_blockers(step: StepContext) -> Blockers:
    """Return why the next broker must not restart.

    An unhealthy cluster comes first, then topics that would become unavailable.
    """
    return cluster_blockers(step) or redundancy_blockers(step)


def restart_wait(step: StepContext, blockers: Blockers) -> Wait:
    """Return the wait before a broker's restart; it is the user's turn if a topic lacks redundancy."""
    theirs = not cluster_blockers(step) and blockers[0].startswith((Code.TOPIC_NOT_REPLICATED, Code.TOPIC_AT_MIN_ISR))
    message = f"before the next broker restarts: {blockers[0]}"
    if theirs:
        return Wait(message, WaitKind.USER, Reason.FINDINGS, stalled=True)
    return Wait(message)


def restart_gate(step: StepContext, *, quorum: bool = True) -> Wait | None:
    """Return the wait while no broker may restart; ``quorum``: the restarted broker needs one."""
    blockers = restart_blockers(step) or (quorum_blockers(step) if quorum else [])
    if blockers:
        return restart_wait(step, blockers)
    return None


def controllers_gone(step: StepContext) -> bool:
    """Return whether a stop of this attempt's controllers was recorded, and none of their pods is left.

    An absent StatefulSet alone says nothing: somebody may have deleted it, and its pods may run on.
    """
    workload = step.observation.controllers
    if step.status.controllers is None:
        return True
    if not _stop_is_recorded(step) or not isinstance(workload, ControllersWorkload) or workload.left:
        return False
    # A StatefulSet that is being deleted creates no pods.
    stateful_set = workload.stateful_set
    return stateful_set is None or (stateful_set.deleting and not stateful_set.pods)


def _quorum_is_stopped(step: StepContext) -> bool:
    """Return whether a rollback has stopped this attempt's controllers."""
    stopped = step.status.controllers is None or _stop_is_recorded(step)
    return stopped and step.status.phase is Phase.ROLLING_BACK


def _stop_is_recorded(step: StepContext) -> bool:
    return rollback_record(step.status).controllers_stopped_at is not None


def controllers_running_blockers(step: StepContext, mode: ControllerMode, *, newest: bool = True) -> Blockers:
    """Every controller's pod is Ready; with ``newest`` it runs the configuration that its StatefulSet has now."""
    workload = step.observation.controllers
    if isinstance(workload, Unobserved):
        return [str(workload)]
    stateful_set = workload.stateful_set
    if stateful_set is None:
        return ["the controllers' StatefulSet is being created"]
    rendered = stateful_set.configuration.startswith(f"{mode}-")
    pods = {pod.ordinal: pod for pod in stateful_set.pods}
    expected = stateful_set.configuration if newest else None
    states = (_voter_problem(node_id, pods.get(node_id), expected) for node_id in step.spec.controllers.node_ids)
    return [
        *failed((not rendered, f"StatefulSet {stateful_set.name} does not render mode {mode} yet")),
        *filter(None, states),
    ]


def _voter_problem(node_id: int, pod: PodState | None, configuration: str | None) -> str:
    if pod is None:
        return f"controller {node_id} has no pod yet"
    if pod.deleting:
        return f"pod {pod.name} is being replaced"
    if pod.down or configuration in (None, pod.configuration):
        return pod.down
    return f"pod {pod.name} does not run configuration {configuration} yet"


def controller_in_trouble(step: StepContext) -> PodState | None:
    """Return the first controller's pod that cannot run, None when all can run."""
    return next((pod for pod in controllers_pods(step) if pod.trouble and not pod.ready), None)


def _controller_trouble(step: StepContext, node_id: int) -> str:
    pod = controller_pod(step, node_id)
    if pod is None or pod.ready:
        return ""
    return f"; pod {pod.name}: {pod.trouble or 'not Ready'}"


def _metrics_of(step: StepContext, node_id: int) -> ControllerMetrics | Unobserved:
    unread = Unobserved(f"controller {node_id}", "its metrics were not read")
    return step.observation.metrics.get(node_id, unread)


def quorum_blockers(step: StepContext, without: int | None = None) -> Blockers:
    """Every voter has seen the same leader for some seconds, no voter lags, and no voter's certificate has ended.

    Known from DescribeQuorum, each voter's gauges, and what each voter presents. After the end of a certificate the
    connections that are open carry the quorum on, and a voter that restarts makes none.
    A voter without a metrics agent shows that it follows by its fetches.

    Parameters
    ----------
    step
        The step.
    without
        Node id of a voter that is not asked for anything.
    """
    if ended := presented.expired(step):
        return [f"the certificate of controller {_list(record.node_id for record in ended)} has ended"]
    quorum = step.observation.quorum
    if isinstance(quorum, Unobserved):
        return [str(quorum)]
    wanted = sorted(step.spec.controllers.node_ids)
    voters = sorted({voter.id for voter in quorum.voters})
    lag = quorum.lag_records(without)
    metrics = {node_id: _metrics_of(step, node_id) for node_id in wanted if node_id != without}
    views = (_voter_view(step, quorum, node_id, reading) for node_id, reading in metrics.items())
    blockers = [
        *failed(
            (voters != wanted, f"the quorum's voters are {_list(voters)}, not {_list(wanted)}"),
            (lag is None, "a voter has not fetched from the leader yet"),
            ((lag or 0) > MAX_LAG_RECORDS, f"the slowest voter is {lag} records behind"),
        ),
        *filter(None, views),
    ]
    active = sum(reading.active for reading in metrics.values() if isinstance(reading, ControllerMetrics))
    # A leader without a metrics agent does not report it.
    expected = int(quorum.leader_id not in without_agent(step))
    return blockers + failed(
        (not blockers and active != expected, f"{active} controllers report that they are active; exactly one must"),
        (
            not _has_led_for_long(step, quorum),
            f"leader {quorum.leader_id} has not led for {LEADER_STABLE_FOR.seconds} s yet",
        ),
    )


def _voter_view(step: StepContext, quorum: QuorumState, node_id: int, metrics: ControllerMetrics | Unobserved) -> str:
    """Return why a voter does not see the quorum as its leader describes it, ``""`` when it does."""
    if node_id in without_agent(step):
        return _silence(step, quorum, node_id)
    if isinstance(metrics, Unobserved):
        return f"{metrics}{_controller_trouble(step, node_id)}"
    if (metrics.leader_id, metrics.leader_epoch) == (quorum.leader_id, quorum.leader_epoch):
        return ""
    return (
        f"controller {node_id} sees leader {metrics.leader_id} in epoch {metrics.leader_epoch}, "
        f"not {quorum.leader_id} in {quorum.leader_epoch}"
    )


def _silence(step: StepContext, quorum: QuorumState, node_id: int) -> str:
    """Return why a voter is not known to follow, ``""`` when it has just fetched from the leader.

    Kafka takes a fetch only from a voter that knows leader and epoch (``KafkaRaftClient.validateLeaderOnlyRequest``).
    """
    seconds = next((voter.silent_seconds for voter in quorum.voters if voter.id == node_id), None)
    if seconds is None:
        return f"controller {node_id} has not fetched from the leader yet{_controller_trouble(step, node_id)}"
    if seconds <= MOST_SILENT_SECONDS:
        return ""
    return f"controller {node_id} has not fetched from the leader for {seconds:.0f} s"


def _has_led_for_long(step: StepContext, quorum: QuorumState) -> bool:
    recorded = step.status.quorum
    if recorded is None or recorded.leader_id != quorum.leader_id:
        return False
    return age(step, recorded.leader_since) >= LEADER_STABLE_FOR


def voter_registration_blockers(step: StepContext) -> Blockers:
    """Every voter is registered with the active controller; the migration driver waits for that.

    Sources: ``QuorumFeatures``, KIP-866.
    """
    registered = step.observation.registered_controllers
    if isinstance(registered, Unobserved):
        return [str(registered)]
    missing = sorted(set(step.spec.controllers.node_ids) - registered)
    return failed((missing, f"controller {_list(missing)} follows the leader but has not registered with it"))


def volume_blockers(step: StepContext) -> Blockers:
    """Every controller's volume is recorded, and the start script does not format blank volumes any more."""
    status = step.status.controllers
    workload = step.observation.controllers
    if status is None or not isinstance(workload, ControllersWorkload):
        return [str(workload)]
    allowed = workload.format_allowed is not False or workload.reformat is not None
    return failed(
        (status.format_allowed, "the controllers' volumes are not all bound yet"),
        (allowed, "the controllers' ConfigMap still allows a blank volume to be formatted"),
    )[:1]


def migration_state_blockers(step: StepContext, state: ZkMigrationState) -> Blockers:
    """Every voter reports ``state`` (gauge ``ZkMigrationState``)."""
    blockers: Blockers = []
    for node_id in step.spec.controllers.node_ids:
        metrics = _metrics_of(step, node_id)
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
        return [NO_ACTIVE_CONTROLLER]
    migrating = active.migrating_zk_brokers
    fenced = active.fenced_brokers
    unfenced = active.active_brokers
    return failed(
        (migrating, f"{migrating} broker(s) are still registered as ZooKeeper brokers"),
        (unfenced != total, f"{unfenced} of {total} brokers are registered and unfenced"),
        (fenced, f"{fenced} broker(s) are fenced"),
    )


def dual_write_blockers(step: StepContext) -> Blockers:
    """ZooKeeper receives the KRaft controller's changes now.

    The driver writes ``ZkMigrationState`` before it reaches DUAL_WRITE (``KRaftMigrationDriver``).
    So the gate also needs the claim on ``/controller`` and a growing offset in ``/migration``.
    """
    zookeeper = step.observation.zookeeper
    active = step.observation.active_controller
    if isinstance(zookeeper, Unobserved):
        return [str(zookeeper)]
    if active is None:
        return [NO_ACTIVE_CONTROLLER]
    state = active.zk_migration_state
    migrates = state is ZkMigrationState.MIGRATION
    return [
        *failed(
            (not migrates, f"the active controller {active.node_id} is in migration state {state}, not MIGRATION"),
            (not quorum_claims(step), "the KRaft quorum has not claimed /controller yet"),
        ),
        *_mirror_blockers(step, zookeeper.migration),
    ]


def quorum_claims(step: StepContext) -> bool:
    """Return whether ``/controller`` names a controller of this migration."""
    controller = controller_znode(step)
    return controller is not None and controller.broker_id in step.spec.controllers.node_ids


def _mirror_blockers(step: StepContext, migration: MigrationZnode | Unobserved | None) -> Blockers:
    if migration is None:
        return ["/migration is missing"]
    if isinstance(migration, Unobserved):
        return [str(migration)]
    offset = migration.kraft_metadata_offset
    return failed(
        (offset < 0, "the copy to KRaft is not complete (/migration has no offset yet)"),
        (not mirrors(step), f"the offset in /migration stays at {offset}; it must grow"),
    )[:1]


def mirrors(step: StepContext) -> bool:
    """Return whether the offset in ``/migration`` has grown within `MIRROR_SILENCE`."""
    offset = step.status.migration_offset
    if offset is None or offset.moved_at is None:
        return False
    # A time that lies ahead is of a clock that was set back since.
    return abs(step.now - offset.moved_at) < MIRROR_SILENCE


def views_of_cluster(step: StepContext) -> list[ClusterState]:
    """Return the cluster as each broker that answered serves it; empty if no broker was asked."""
    views = step.observation.cluster_by_broker
    if isinstance(views, Unobserved):
        return []
    return [view for view in (step.observation.cluster, *views.values()) if isinstance(view, ClusterState)]


def all_serve(step: StepContext, broker_ids: frozenset[int]) -> bool:
    """Return whether every broker that answered lists all of ``broker_ids``."""
    views = views_of_cluster(step)
    return bool(views) and all(broker_ids <= view.brokers for view in views)


def _list(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))


LOOK_INTO_LOGS_AFTER = timedelta(seconds=60)
"""Logs are read after this time without progress: longer than a broker's restart, much shorter than any deadline."""
MOST_NODES = 3


def is_slow(status: MigrationStatus, now: datetime) -> bool:
    """Return whether a phase that waits for nobody has made no progress for `LOOK_INTO_LOGS_AFTER`."""
    working = status.waiting is None or status.waiting.kind in (WaitKind.WORK, WaitKind.VERIFICATION)
    if not working or status.phase.at_rest or status.progress_at is None:
        return False
    return now - status.progress_at > LOOK_INTO_LOGS_AFTER


def explained(step: StepContext, waiting: Wait) -> Wait:
    """Return the wait with the first controller that is down and with what keeps pods from being created.

    After a while also with the meaning and fix of log lines.
    """
    message = waiting.message
    pod = controller_in_trouble(step)
    if pod is not None and pod.name not in message:
        message = f"{message}. Down: pod {pod.name}: {pod.trouble}"
    message = ". ".join((message, *_advice(step, message), *_refused_pods(step), *_words_of_logs(step, waiting.kind)))
    if message != waiting.message:
        return replace(waiting, message=message)
    return waiting


def _advice(step: StepContext, message: str) -> list[str]:
    """Return what ends the problems of the pods that a message names."""
    pods = (*controllers_pods(step), *(pod for _, pod in brokers_of(step)))
    troubled = [pod for pod in pods if not pod.ready and re.search(rf"{re.escape(pod.name)}(?![\w-])", message)]
    return list(dict.fromkeys(str(pod.problem) for pod in troubled if pod.problem is not None))


def _words_of_logs(step: StepContext, kind: WaitKind) -> list[str]:
    clues = step.observation.clues
    if isinstance(clues, Unobserved) or kind is WaitKind.USER:
        return []
    with_lines = {node: lines for node, lines in clues.items() if lines}
    telling = {n: lines for n, lines in with_lines.items() if any(c.code is not Code.DRIVER_STATE for c in lines)}
    nodes = sorted((telling or with_lines).items())[:MOST_NODES]
    if not nodes:
        return []
    words = "; ".join(f"{node}: {_sentence(lines)}" for node, lines in nodes)
    return [f"Logs: {words}"]


def _refused_pods(step: StepContext) -> Iterator[str]:
    for stateful_set in step.observation.seen_sets:
        if stateful_set.pods_refused:
            yield (
                f"StatefulSet {stateful_set.name} lacks a pod: {stateful_set.pods_refused}. {PodProblem.NOT_CREATED}"
            )


def _sentence(clues: tuple[Clue, ...]) -> str:
    first = clues[0]
    states = [clue for clue in clues[1:] if clue.code is Code.DRIVER_STATE]
    meanings = ", ".join(map(meaning_of, (first, *states[:1])))
    if first.code.severity is Severity.INFORMATION:
        return meanings
    return f"{meanings} ({first.code.fix})"
