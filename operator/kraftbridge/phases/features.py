"""Raises the features of a cluster on Kafka 4, on the user's word ``spec.kafka4.metadataVersion`` (KIP-584). Pure.

metadata.version comes first, then each other feature that every node supports, one by one, to its newest level. Each
is validated by the active controller, verified before and after, and ends the way back: the release before does not
start with it. ``kraft.version`` is never raised: it makes the quorum dynamic (KIP-853), a decision of its own and a
trap on a static quorum (KAFKA-18979). So no release is ever given as a whole (``--release-version``).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from kraftbridge.models.conditions import Reason
from kraftbridge.models.decision import EventReason, UpdateMetadataVersion
from kraftbridge.models.metadata_version import FEATURE, Upgrade, name_of
from kraftbridge.models.observation import QuorumState, Unobserved
from kraftbridge.models.phase import Phase
from kraftbridge.models.report import Profile
from kraftbridge.models.status import AskedFeature, Kafka4Leg, RaisedFeature, WaitKind
from kraftbridge.phases import gates, kafka4_leg, metadata_version, verifying
from kraftbridge.phases.draft import Draft, StepContext, Wait
from kraftbridge.phases.metadata_version import Nodes
from kraftbridge.phases.observed import because

NEVER: Final = "kraft.version"
ASK_AGAIN: Final = timedelta(seconds=15)
MEANINGS: Final = {
    FEATURE: "the release before does not start with its records",
    "eligible.leader.replicas.version": (
        "min.insync.replicas of single brokers is dropped, and that of the cluster counts (KIP-966)"
    ),
    "group.version": "groups may use the new protocol, whose state the release before does not read (KIP-848)",
    "share.version": "share groups keep their state in a topic that the release before does not know (KIP-932)",
    "streams.version": "streams groups keep state that the release before does not read (KIP-1071)",
    "transaction.version": "transactions are written so that the release before does not read their state (KIP-890)",
}
"""What cannot be taken back once a feature is raised."""


def ensure_features(draft: Draft) -> Wait | None:
    """Raise the features that the user's word asks for; return None when there is nothing to raise."""
    asked = draft.spec.kafka4
    leg = draft.status.kafka4_leg
    wanted = None if asked is None else asked.metadata_level
    if leg is None:
        return None
    unfinished = _unfinished(leg)
    if wanted is None and unfinished is None:
        _forget_question(draft, leg)
        return None
    nodes = metadata_version.nodes_of(draft)
    if isinstance(nodes, str):
        return Wait(f"features: {nodes}")
    if unfinished is not None:
        return _follow(draft, leg, unfinished, nodes)
    if wanted is None:
        return None
    return _begin_next(draft, leg, nodes, wanted)


def summary(step: StepContext) -> str:
    """Return what is true of the features, as a sentence without its full stop."""
    leg = step.status.kafka4_leg
    asked = step.spec.kafka4
    if leg is None or asked is None or asked.metadata_version is None:
        return (
            "no feature was raised. spec.kafka4.metadataVersion raises them, which ends the way back; "
            "spec.target KRaft goes back"
        )
    raised = [f"{each.name} {text_of(each.name, each.to_level)}" for each in leg.features if each.finished_at]
    refused = [f"{each.name} ({each.refused})" for each in leg.features if each.refused]
    words = f"features raised: {', '.join(raised) or 'none, all were at these levels'}"
    return f"{words}; refused by Kafka: {', '.join(refused)}" if refused else words


def text_of(name: str, level: int) -> str:
    """Return a level as people know it: names of versions for ``metadata.version``."""
    return name_of(level) if name == FEATURE else str(level)


def take_refusal_back(draft: Draft) -> None:
    """Withdraw a request that Kafka has refused although it had validated it: it is asked again before the next one."""
    leg = draft.status.kafka4_leg
    unfinished = None if leg is None else _unfinished(leg)
    if leg is None or unfinished is None:
        return
    rest = tuple(each for each in leg.features if each is not unfinished)
    changes: dict[str, object] = {"features": rest, "asks": None}
    if not any(each.finished_at for each in rest):
        changes |= {"final_at": None, "final_reason": ""}
    draft.update(kafka4_leg=leg.model_copy(update=changes))


def _unfinished(leg: Kafka4Leg) -> RaisedFeature | None:
    return next((each for each in leg.features if each.finished_at is None and not each.refused), None)


def _begin_next(draft: Draft, leg: Kafka4Leg, nodes: Nodes, wanted: int) -> Wait | None:
    """Validate, verify and begin the next feature; return None once none is left."""
    following = _next(draft, leg, nodes, wanted)
    if following is None:
        _forget_question(draft, leg)
        return None
    if isinstance(following, Wait):
        return following
    words = f"{following.name} {text_of(following.name, following.to_level)}"
    if leg.asks != following:
        draft.update(kafka4_leg=leg.model_copy(update={"asks": following}))
        return Wait(f"the active controller validates {words}")
    if blockers := metadata_version.not_settled(draft) or gates.quorum_blockers(draft) or _not_whole(draft):
        return Wait(f"before {words}: {blockers[0]}", requeue_after=timedelta(seconds=2))
    answer = draft.observation.feature_answer
    if isinstance(answer, Unobserved):
        return Wait(f"the active controller validates {words}{because(str(answer))}")
    if (answer.feature, answer.level) != (following.name, following.to_level):
        return Wait(f"the active controller validates {words}")
    if not answer.accepted:
        return _refuse(draft, leg, following, answer.words)
    number = len(leg.features) + 1
    waiting = verifying.ensure_verdict(draft, Profile.REPLICAS, Phase.KAFKA4, _purpose(number, "before"))
    return waiting or _begin(draft, leg, following)


def _next(step: StepContext, leg: Kafka4Leg, nodes: Nodes, wanted: int) -> AskedFeature | Wait | None:
    """Return the next feature to raise, None when all are raised, the wait while that cannot be told."""
    current = metadata_version.current_of(step, nodes)
    if current is None:
        return Wait("features: the active controller has not loaded its image yet")
    if current < wanted:
        return AskedFeature(name=FEATURE, from_level=current, to_level=wanted)
    refused = {(each.name, each.to_level) for each in leg.features if each.refused}
    for name in sorted(_common(nodes)):
        level = min(node.supported[name][1] for node in nodes.values())
        now = max(node.finalized.get(name, 0) for node in nodes.values())
        if now < level and (name, level) not in refused:
            return AskedFeature(name=name, from_level=now, to_level=level)
    return None


def _common(nodes: Nodes) -> set[str]:
    """Return the features that every node supports, without those that are no matter of this leg."""
    common = set.intersection(*(set(node.supported) for node in nodes.values()))
    return common - {FEATURE, NEVER}


def _refuse(draft: Draft, leg: Kafka4Leg, following: AskedFeature, why: str) -> Wait:
    """Return the wait for a level that Kafka refuses; of a feature beside metadata.version it is only noted."""
    words = f"Kafka refuses {following.name} {text_of(following.name, following.to_level)}: {why}"
    if following.name == FEATURE:
        return Wait(
            f"{words}; nothing was changed", WaitKind.USER, Reason.REFUSED, stalled=True, requeue_after=ASK_AGAIN
        )
    noted = RaisedFeature(
        name=following.name,
        from_level=following.from_level,
        to_level=following.to_level,
        after_offset="-1",
        asked_at=draft.now,
        refused=why[:300] or "no reason was given",
    )
    draft.update(kafka4_leg=leg.model_copy(update={"features": (*leg.features, noted), "asks": None}))
    return Wait(words)


def _begin(draft: Draft, leg: Kafka4Leg, following: AskedFeature) -> Wait:
    """Record the end of the way back and the feature, and send the request."""
    quorum = draft.observation.quorum
    assert isinstance(quorum, QuorumState)  # `gates.quorum_blockers` has checked it
    raised = RaisedFeature(
        name=following.name,
        from_level=following.from_level,
        to_level=following.to_level,
        after_offset=str(quorum.high_watermark),
        asked_at=draft.now,
    )
    levels = f"from {text_of(raised.name, raised.from_level)} to {text_of(raised.name, raised.to_level)}"
    meaning = MEANINGS.get(raised.name, "the release before does not know it")
    draft.update(kafka4_leg=leg.model_copy(update={"features": (*leg.features, raised), "asks": None}))
    kafka4_leg.end_way_back(draft, f"{raised.name} is raised {levels}: {meaning}")
    draft.tell(EventReason.METADATA_VERSION_CHANGING, f"Raising {raised.name} {levels}: {meaning}")
    return _send(draft, raised)


def _send(draft: Draft, raised: RaisedFeature) -> Wait:
    draft.act(UpdateMetadataVersion(raised.to_level, Upgrade.UPGRADE, raised.name))
    words = f"{raised.name} {text_of(raised.name, raised.to_level)}"
    return Wait(f"the active controller is asked for {words}{because(draft.failure())}")


def _follow(draft: Draft, leg: Kafka4Leg, raised: RaisedFeature, nodes: Nodes) -> Wait | None:
    """Repeat the request until Kafka commits it, wait until every node has it, and verify."""
    leader = metadata_version.leader_of(draft, nodes)
    if leader is None or leader.finalized.get(raised.name, 0) != raised.to_level:
        return _send(draft, raised)
    words = f"{raised.name} {text_of(raised.name, raised.to_level)}"
    for node_id, node in sorted(nodes.items()):
        if node.finalized.get(raised.name, 0) != raised.to_level or node.finalized_epoch < int(raised.after_offset):
            return Wait(f"{words} is committed; node {node_id} has not applied it yet")
    number = leg.features.index(raised) + 1
    waiting = verifying.ensure_verdict(draft, Profile.REPLICAS, Phase.KAFKA4, _purpose(number, "after"))
    if waiting is not None:
        return waiting
    done = raised.model_copy(update={"finished_at": draft.now})
    features = tuple(done if each is raised else each for each in leg.features)
    draft.update(kafka4_leg=leg.model_copy(update={"features": features}))
    draft.tell(EventReason.METADATA_VERSION_CHANGED, f"{words} is in force on all {len(nodes)} nodes")
    return Wait(f"{words} is in force on all {len(nodes)} nodes")


def _forget_question(draft: Draft, leg: Kafka4Leg) -> None:
    if leg.asks is not None:
        draft.update(kafka4_leg=leg.model_copy(update={"asks": None}))


def _not_whole(step: StepContext) -> gates.Blockers:
    """Every registered broker is unfenced and in Metadata, and every ISR is full."""
    cluster = step.observation.cluster
    if isinstance(cluster, Unobserved):
        return [str(cluster)]
    expected = frozenset(step.status.broker_ids.values())
    strangers = sorted(cluster.brokers - expected)
    return [
        *gates.broker_registration_blockers(step),
        *cluster.problems(expected),
        *gates.failed((strangers, f"broker {', '.join(map(str, strangers))} does not belong to this migration")),
    ]


def _purpose(number: int, when: str) -> str:
    return f"feature-{number}-{when}"
