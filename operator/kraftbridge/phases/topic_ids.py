"""Proves that every topic has its id and every log keeps it, where the protocol was lifted for that. Pure.

With a protocol below 2.8 ZooKeeper's controller gives topics no ids and brokers keep none (KIP-516). KRaft's first
full request throws on a log without one (``ReplicaManager.becomeLeaderOrFollower``), and a start in KRaft mode takes it
for a stray replica. So a broker enters migration mode only after it was led, since its own last start, by a controller
on ZooKeeper with a newer protocol, and while it runs one itself:

- Such a controller gives every topic its id when it is elected (``KafkaController.processTopicIds``). It sends all
  replicas of a broker with the ids to each broker that lives then, and to each broker that starts later
  (LeaderAndIsr from version 5 on).
- A broker with such a protocol writes the id it is sent into ``partition.metadata`` beside the log, also where nothing
  else has changed (``UnifiedLog.assignTopicId``). With an older one it keeps none.

A broker's metadata cache is empty when it starts and takes ids from such a controller alone (UpdateMetadata from
version 7 on). So one that lists every topic with its id was led like that since its start, and every ISR being full
shows that it follows what it was sent. Nobody sends a replica that no topic assigns to the broker, so there must be
none. All of that is asked of each broker itself, and holds for the process that has told it.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraftbridge.models.catalogue import Code
from kraftbridge.models.observation import PodState, StatefulSetState, TopicIds, Unobserved
from kraftbridge.models.phase import BrokerMode, Part
from kraftbridge.models.protocol import BRIDGE, SETTING, has_topic_ids
from kraftbridge.models.status import FindingStatus, MigrationStatus, finding, first
from kraftbridge.phases import upgrading
from kraftbridge.phases.draft import Draft, StepContext, Wait, for_user
from kraftbridge.phases.observed import brokers_of, unread
from kraftbridge.phases.preflight import disks

_SHOWN = 3


def are_followed(status: MigrationStatus) -> bool:
    """Return whether brokers are asked: the protocol is lifted in a rolling restart of its own, and that has begun.

    Once the copy is made, every topic has its id in the log.
    """
    return upgrading.is_lifting(status) and Part.TOPIC_IDS in status.phase.row.needs


def to_ask(status: MigrationStatus, sets: Iterable[StatefulSetState | Unobserved]) -> dict[int, str]:
    """Return the process of each broker that serves and has shown nothing yet."""
    shown = _shown(status)
    pods = [pod for item in sets if not isinstance(item, Unobserved) for pod in item.pods if not pod.down]
    processes = {status.broker_ids[pod.name]: pod.process for pod in pods if pod.name in status.broker_ids}
    return {broker: process for broker, process in sorted(processes.items()) if shown.get(broker, "") != process}


def _shown(status: MigrationStatus) -> dict[int, str]:
    """Return the process of each broker that has shown its ids, ``""`` of one that has not."""
    return {node.id: node.with_topic_ids for node in status.nodes if node.role == "broker"}


def track(draft: Draft) -> None:
    """Record the processes that have shown that they keep the id of every topic."""
    told = draft.observation.topic_ids
    if isinstance(told, Unobserved) or not are_followed(draft.status):
        return
    shown = {
        broker: answer.process
        for broker, answer in told.items()
        if not isinstance(answer, Unobserved) and not _lack(draft, answer) and not _strays(draft, broker, answer)
    }
    nodes = tuple(
        node.model_copy(update={"with_topic_ids": shown[node.id]})
        if node.role == "broker" and node.id in shown
        else node
        for node in draft.status.nodes
    )
    draft.update(nodes=nodes)


def wait(step: StepContext, before: str, without: frozenset[int] = frozenset()) -> Wait | None:
    """Return None once every broker has shown that it keeps the id of every topic since its own last start.

    Parameters
    ----------
    before
        What waits for it, for the message.
    without
        Brokers that are not asked: one whose restart can only help, and those that restart and had shown it before.
        Their logs keep the ids that an earlier process wrote.
    """
    if not are_followed(step.status):
        return None
    sets = step.stateful_sets()
    if isinstance(sets, Unobserved):
        return Wait(f"{before}: {sets}")
    pods = {pod.name: pod for _, pod in brokers_of(step)}
    shown = _shown(step.status)
    for name, broker in sorted(step.status.broker_ids.items(), key=lambda item: item[1]):
        pod = pods.get(name)
        missing = _missing(pod, name)
        proven = pod is not None and not missing and shown.get(broker, "") == pod.process
        if broker not in without and not proven:
            return _wait_for(step, before, broker, name, missing)
    return None


def _missing(pod: PodState | None, name: str) -> str:
    """Return why a broker's pod can show nothing, ``""`` if it can."""
    if pod is None:
        return f"pod {name} does not exist"
    if pod.down:
        return pod.down
    lifted = BrokerMode.of(pod.configuration).lifts
    return "" if lifted else f"pod {name} does not run {SETTING} {BRIDGE} yet"


def _wait_for(step: StepContext, before: str, broker: int, pod: str, missing: str) -> Wait:
    """Return the wait for one broker: for its user, where nothing but the user removes what keeps it from its ids."""
    told = step.observation.topic_ids
    answer = told if isinstance(told, Unobserved) else told.get(broker, Unobserved(f"broker {broker}", "not asked yet"))
    reason = missing
    if not reason and isinstance(answer, Unobserved):
        reason = unread(answer) or "it was not asked yet"
    if not reason and isinstance(answer, TopicIds):
        reason = _lack(step, answer)
        if not reason and (stray := _strays(step, broker, answer)):
            return for_user(f"{before}: {stray[0].sentence}")
    reason = reason or "it is asked again"
    found = finding(Code.TOPIC_IDS_NOT_PROVEN, f"broker/{broker}", broker=broker, reason=reason, pod=pod)
    return Wait(f"{before}: {found.sentence}")


def _lack(step: StepContext, answer: TopicIds) -> str:
    """Return what a broker's answer lacks to show that it keeps the id of every topic, ``""`` if nothing."""
    cluster = step.observation.cluster
    if not has_topic_ids(answer.protocol):
        return f"it runs {SETTING} {answer.protocol or 'that it does not tell'}, with which it keeps none"
    if isinstance(cluster, Unobserved):
        return str(cluster)
    if answer.partitions != cluster.partitions:
        # A broker that has just started lists few topics or none.
        return f"it lists {answer.partitions} partitions, and the cluster has {cluster.partitions}"
    if answer.without_count:
        return f"it lists {answer.without_count} topic(s) without an id: {first(answer.without, _SHOWN)}"
    if isinstance(answer.log_dirs, Unobserved) and not _accepts_unknown(step, answer.log_dirs):
        return str(answer.log_dirs)
    return ""


def _accepts_unknown(step: StepContext, unknown: Unobserved) -> bool:
    """Return whether the user accepted in preflight that nobody knows what is in the brokers' log directories."""
    accepts = step.spec.preflight.accepts
    return accepts(Code.LOG_DIRS_UNKNOWN, "brokers") or accepts(Code.LOG_DIRS_UNKNOWN, unknown.source)


def _strays(step: StepContext, broker: int, answer: TopicIds) -> list[FindingStatus]:
    """Return the findings about replicas that no topic assigns to a broker, without those that the user accepts."""
    if isinstance(answer.log_dirs, Unobserved):
        return []
    found = [each for directory in answer.log_dirs for each in disks.left_over(broker, directory)]
    return [each for each in found if not step.spec.preflight.accepts(each.code, each.object)]
