"""Changes metadata.version after the migration (KIP-778). Pure.

The steps are: check that every node supports the level, let the active controller validate it, verify, change, wait
until every node has applied it, verify. Kafka refuses a change during a ZooKeeper migration, so the first step is in
`Phase.COMPLETED`. Without ``spec.metadataVersion`` nothing changes. Status records the intent: the operator publishes
`CHANGING` before it sends the request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta

from kraftbridge.models.conditions import ConditionType, Reason, Status
from kraftbridge.models.decision import EventReason, EventType, UpdateMetadataVersion
from kraftbridge.models.metadata_version import (
    FEATURE,
    LevelCause,
    Release,
    Upgrade,
    effective_level,
    lowest_without_loss,
    name_of,
    release_of,
    text_of,
)
from kraftbridge.models.observation import (
    FeatureAnswer,
    NodeFeatures,
    QuorumState,
    StatefulSetState,
    Unobserved,
)
from kraftbridge.models.phase import Phase, ZkMigrationState
from kraftbridge.models.report import Profile
from kraftbridge.models.status import (
    MetadataVersionChange,
    MetadataVersionState,
    MetadataVersionStatus,
    NodeLevels,
    WaitKind,
)
from kraftbridge.phases import gates, verifying
from kraftbridge.phases.draft import Draft, StepContext, Wait
from kraftbridge.phases.observed import because, observed

ASK_AGAIN = timedelta(seconds=15)
"""How often a refused change is checked again, since nodes and metadata may have changed."""
_NAMED = 3

Nodes = Mapping[int, NodeFeatures]


def track(draft: Draft) -> None:
    """Record the cluster's level and the range of every node; during the migration, record that the change waits."""
    if draft.status.phase is not Phase.COMPLETED and not draft.status.phase.row.on_kafka4:
        _track_waiting(draft)
        return
    nodes = nodes_of(draft)
    if isinstance(nodes, str):
        return  # keep the last observation
    record = _record(draft)
    current = current_of(draft, nodes)
    changes: dict[str, object] = {"nodes": tuple(_levels(draft, i, node) for i, node in sorted(nodes.items()))}
    if current is not None:
        changes["current"] = name_of(current)
    draft.update(metadata_version=record.model_copy(update=changes))


def _track_waiting(draft: Draft) -> None:
    wanted = draft.spec.metadata_level
    if wanted is not None:
        message = (
            "Kafka refuses a change of metadata.version during a migration; "
            f"{text_of(wanted)} is applied in phase {Phase.COMPLETED}"
        )
        _set(draft, MetadataVersionState.WAITING, message, Reason.WAITING, target=wanted)
    elif draft.status.metadata_version is not None:
        _set(draft, MetadataVersionState.OBSERVED, "", Reason.NOT_ASKED, target=None)


def _levels(step: StepContext, node_id: int, node: NodeFeatures) -> NodeLevels:
    lowest, highest = node.supported.get(FEATURE, (0, 0))
    return NodeLevels(
        id=node_id,
        role=_role(step, node_id),
        finalized=name_of(node.finalized[FEATURE]) if FEATURE in node.finalized else "",
        lowest=name_of(lowest),
        highest=name_of(highest),
    )


def _role(step: StepContext, node_id: int) -> str:
    return "controller" if node_id in step.spec.controllers.node_ids else "broker"


def ensure_version(draft: Draft) -> Wait | None:
    """Bring metadata.version to ``spec.metadataVersion``; return None when there is nothing to do."""
    wanted = draft.spec.metadata_level
    nodes = nodes_of(draft)
    _drop_unless_wanted(draft, wanted)
    if unable := _unable_templates(draft, nodes):
        return _refuse(draft, unable, wanted, Reason.SOFTWARE_TOO_OLD)
    if wanted is None:
        message = "spec.metadataVersion is not set: metadata.version stays"
        _set(draft, MetadataVersionState.OBSERVED, message, Reason.NOT_ASKED)
        return None
    if _is_clean(draft) and (isinstance(nodes, str) or current_of(draft, nodes) != wanted):
        _set_without_log(draft, wanted)
        return None
    if isinstance(nodes, str):
        return _set_waiting(draft, nodes, wanted)
    change = _unfinished(draft)
    if change is not None:
        return _follow(draft, change, nodes)
    current = current_of(draft, nodes)
    if current is None:
        return _set_waiting(draft, "the active controller has not loaded its image yet", wanted)
    if behind := _behind(nodes, current):
        return _set_waiting(draft, f"the active controller is at {text_of(current)}; {_some(behind)}", wanted)
    if current == wanted:
        message = f"metadata.version is {text_of(wanted)} on all {len(nodes)} nodes"
        _set(draft, MetadataVersionState.IN_FORCE, message, Reason.IN_FORCE, target=wanted)
        return None
    return _begin(draft, nodes, current, wanted)


def is_settled(step: StepContext) -> bool:
    """Return whether nothing is left to change: what the spec asks for is in force, or it asks for nothing."""
    if step.spec.metadata_level is None or step.status.phase.row.on_kafka4:
        return _unfinished(step) is None
    record = _record(step)
    return record.state is MetadataVersionState.IN_FORCE and record.target_level == step.spec.metadata_level


def _is_clean(step: StepContext) -> bool:
    """Return whether the controllers run, or restart, without the log servers that a verification reads."""
    return step.status.controllers is not None and step.status.controllers.clean


def _set_without_log(draft: Draft, wanted: int) -> None:
    message = (
        f"metadata.version {text_of(wanted)} is not set by the operator: spec.handOver is Clean, "
        "so no verification can read the log before and after the change. Use kafka-features.sh"
    )
    _set(draft, MetadataVersionState.REFUSED, message, Reason.REFUSED, target=wanted)


def _unfinished(step: StepContext) -> MetadataVersionChange | None:
    change = _record(step).change
    return change if change is not None and change.finished_at is None else None


def _drop_unless_wanted(draft: Draft, wanted: int | None) -> None:
    """Drop an unfinished change that the spec does not ask for any more."""
    change = _unfinished(draft)
    if change is not None and change.to_level != wanted:
        _forget_change(draft)


def _forget_change(draft: Draft) -> None:
    draft.update(metadata_version=_record(draft).model_copy(update={"change": None}))


def take_refused_change_back(draft: Draft) -> None:
    """Withdraw a change that Kafka refused after its validation: it is validated again before the next attempt."""
    change = _unfinished(draft)
    if draft.status.phase is Phase.COMPLETED and change is not None:
        _forget_change(draft)
        _set(draft, MetadataVersionState.REFUSED, draft.refusal(), Reason.REFUSED, target=change.to_level)


def _begin(draft: Draft, nodes: Nodes, current: int, wanted: int) -> Wait:
    """Check the conditions of the change, and record the intent when all of them hold."""
    if unable := _unable(draft, nodes, wanted):
        words = f"metadata.version {text_of(wanted)} is refused: {_some(unable)}; nothing was changed"
        return _refuse(draft, words, wanted)
    if blockers := not_settled(draft) or gates.quorum_blockers(draft) or _not_whole(draft):
        return _set_waiting(draft, f"before metadata.version is changed: {blockers[0]}", wanted)
    record = _record(draft)
    upgrade = Upgrade.between(current, wanted)
    number = record.changes + 1
    if record.state is MetadataVersionState.VERIFYING_BEFORE and record.target == name_of(wanted):
        waiting = _ensure_verified_before(draft, number)
        if waiting is not None:
            return waiting
        # Validate once more: the step that starts the change needs a fresh validation and a fresh verdict.
        return _validate(draft, wanted, upgrade)
    answer = draft.observation.feature_answer
    if record.state not in (MetadataVersionState.VALIDATING, MetadataVersionState.REFUSED):
        return _validate(draft, wanted, upgrade)
    if isinstance(answer, Unobserved):
        return _validate(draft, wanted, upgrade, f"; {answer}")
    if (answer.level, answer.upgrade) != (wanted, upgrade):
        return _validate(draft, wanted, upgrade)
    if not answer.accepted:
        return _refuse(draft, _kafkas_word(answer, current), wanted, upgrade=upgrade)
    waiting = _ensure_verified_before(draft, number)
    if waiting is not None:
        _set(draft, MetadataVersionState.VERIFYING_BEFORE, waiting.message, Reason.PROGRESSING, target=wanted)
        return waiting
    quorum = draft.observation.quorum
    assert isinstance(quorum, QuorumState)  # `gates.quorum_blockers` has checked it
    change = MetadataVersionChange(
        number=number,
        from_level=current,
        to_level=wanted,
        upgrade=upgrade,
        after_offset=str(quorum.high_watermark),
        started_at=draft.now,
    )
    draft.update(metadata_version=record.model_copy(update={"change": change, "changes": number}))
    draft.tell(
        EventReason.METADATA_VERSION_CHANGING, f"Changing metadata.version from {text_of(current)} to {text_of(wanted)}"
    )
    return _send(draft, change)


def _ensure_verified_before(draft: Draft, number: int) -> Wait | None:
    return verifying.ensure_verdict(draft, Profile.REPLICAS, Phase.COMPLETED, _purpose(number, "before"))


def _follow(draft: Draft, change: MetadataVersionChange, nodes: Nodes) -> Wait | None:
    """Follow a recorded change: repeat the request until Kafka commits it, wait until every node has it, verify."""
    wanted = change.to_level
    if current_of(draft, nodes) != wanted:
        if draft.now - change.started_at > timedelta(seconds=draft.spec.verification.max_age_seconds):
            # The checks of the change are out of date, so they run again.
            _forget_change(draft)
            message = "the recorded change of metadata.version is too old to be repeated; its checks start again"
            return _set_waiting(draft, message, wanted)
        return _send(draft, change)
    # The offset distinguishes a node that has applied this change from one that was at the same level before.
    if behind := _behind(nodes, wanted, int(change.after_offset)):
        verifying.launch_ahead(draft, Profile.REPLICAS, Phase.COMPLETED, _purpose(change.number, "after"))
        message = f"metadata.version {text_of(wanted)} is committed; {_some(behind)}"
        _set(draft, MetadataVersionState.CHANGING, message, Reason.PROGRESSING, target=wanted)
        return Wait(message)
    if change.applied_at is None:
        change = change.model_copy(update={"applied_at": draft.now})
        draft.update(metadata_version=_record(draft).model_copy(update={"change": change}))
    waiting = verifying.ensure_verdict(draft, Profile.REPLICAS, Phase.COMPLETED, _purpose(change.number, "after"))
    if waiting is not None:
        _set(draft, MetadataVersionState.VERIFYING_AFTER, waiting.message, Reason.PROGRESSING, target=wanted)
        return waiting
    counts = _counts(draft, change.number)
    change = change.model_copy(update={"finished_at": draft.now, "counts": counts})
    draft.update(metadata_version=_record(draft).model_copy(update={"change": change}))
    levels = f"from {text_of(change.from_level)} to {text_of(wanted)}"
    message = f"metadata.version went {levels} on all {len(nodes)} nodes; {counts}"
    _set(draft, MetadataVersionState.IN_FORCE, message, Reason.IN_FORCE, target=wanted)
    draft.tell(EventReason.METADATA_VERSION_CHANGED, message)
    return None


def _send(draft: Draft, change: MetadataVersionChange) -> Wait:
    """Send the request, or repeat it. At its level already, Kafka accepts it as one more record."""
    draft.act(UpdateMetadataVersion(change.to_level, change.upgrade))
    message = (
        f"the active controller is asked for metadata.version {text_of(change.to_level)}{because(draft.failure())}"
    )
    _set(draft, MetadataVersionState.CHANGING, message, Reason.PROGRESSING, target=change.to_level)
    return Wait(message)


# ------------------------------------------------------------------------------------------------ what must hold


def nodes_of(step: StepContext) -> Nodes | str:
    """Return the features of every controller and of every broker in Metadata, or which part or node did not answer."""
    features = step.observation.features
    cluster = step.observation.cluster
    if isinstance(features, Unobserved):
        return str(features)
    if isinstance(cluster, Unobserved):
        return str(cluster)
    nodes: dict[int, NodeFeatures] = {}
    for node_id in (*step.spec.controllers.node_ids, *sorted(cluster.brokers)):
        node = features.get(node_id, Unobserved(f"node {node_id}", "its features were not asked"))
        if isinstance(node, Unobserved):
            return str(node)
        nodes[node_id] = node
    return nodes


def leader_of(step: StepContext, nodes: Nodes) -> NodeFeatures | None:
    """Return the features of the active controller, None without a leader."""
    quorum = step.observation.quorum
    return None if isinstance(quorum, Unobserved) else nodes.get(quorum.leader_id)


def current_of(step: StepContext, nodes: Nodes) -> int | None:
    """Return the level that the active controller has finalized; None without a leader, or while it has no image."""
    leader = leader_of(step, nodes)
    return None if leader is None else leader.finalized.get(FEATURE)


def _behind(nodes: Nodes, level: int, after_offset: int = -1) -> list[str]:
    behind = []
    for node, features in sorted(nodes.items()):
        own = features.finalized.get(FEATURE)
        if own is None:
            behind.append(f"node {node} is at no level yet")
        elif own != level:
            behind.append(f"node {node} is at {text_of(own)}")
        elif features.finalized_epoch < after_offset:
            behind.append(
                f"node {node} has applied the log only up to offset {features.finalized_epoch}, before the change"
            )
    return behind


def _unable(step: StepContext, nodes: Nodes, level: int) -> list[str]:
    unable = []
    for node, features in sorted(nodes.items()):
        lowest, highest = features.supported.get(FEATURE, (0, 0))
        if not lowest <= level <= highest:
            unable.append(f"{_role(step, node)} {node} supports {text_of(lowest)} to {text_of(highest)}")
    return unable


def _all_sets(step: StepContext) -> tuple[StatefulSetState, ...] | Unobserved:
    sets = step.stateful_sets()
    workload = step.observation.controllers
    if isinstance(sets, Unobserved):
        return sets
    if isinstance(workload, Unobserved):
        return workload
    return sets if workload.stateful_set is None else (*sets, workload.stateful_set)


def _unable_templates(step: StepContext, nodes: Nodes | str) -> str:
    """Return the StatefulSets whose template starts a Kafka without the present level: new pods would shut down."""
    level = None if isinstance(nodes, str) else current_of(step, nodes)
    if level is None:
        return ""
    unable = [unable_template(stateful_set, level) for stateful_set in observed(_all_sets(step), ())]
    reasons = [*filter(None, unable)]
    if not reasons:
        return ""
    return f"metadata.version is {text_of(level)}: {_some(reasons)}"


def not_settled(step: StepContext) -> list[str]:
    """Every pod runs the current template, so the next pods support the same range of levels."""
    sets = _all_sets(step)
    if isinstance(sets, Unobserved):
        return [str(sets)]
    blockers = []
    for item in sets:
        if not item.observed or len(item.pods) != item.replicas:
            blockers.append(
                f"StatefulSet {item.name} has {len(item.pods)} of {item.replicas} pods, or an unobserved change"
            )
        for pod in item.pods:
            if pod.revision != item.update_revision:
                blockers.append(
                    f"pod {pod.name} does not run the current template of StatefulSet {item.name}; finish its roll"
                )
            elif pod.down:
                blockers.append(pod.down)
    return blockers


def _not_whole(step: StepContext) -> list[str]:
    """Every registered broker is unfenced and in Metadata, every ISR is full, every voter has ended the migration."""
    cluster = step.observation.cluster
    active = step.observation.active_controller
    if isinstance(cluster, Unobserved):
        return [str(cluster)]
    if active is None:
        return ["no single active controller answers"]
    blockers = gates.migration_state_blockers(step, ZkMigrationState.POST_MIGRATION)
    if active.fenced_brokers:
        blockers.append(f"{active.fenced_brokers} registered broker(s) are fenced: start them, or unregister them")
    if active.active_brokers != len(cluster.brokers):
        blockers.append(
            f"{active.active_brokers} brokers are registered and unfenced, Metadata lists {len(cluster.brokers)}"
        )
    if cluster.offline_count or cluster.under_replicated_count:
        blockers.append(
            f"{cluster.offline_count} partition(s) have no leader, "
            f"{cluster.under_replicated_count} wait for their full ISR"
        )
    return blockers


# ------------------------------------------------------------------------------------------------ words and status


def _kafkas_word(answer: FeatureAnswer, current: int) -> str:
    words = f"Kafka refuses metadata.version {text_of(answer.level)}: {answer.words}"
    lowest = lowest_without_loss(current)
    if answer.upgrade is Upgrade.SAFE_DOWNGRADE and answer.level < lowest:
        words += f" (the lowest level without loss from {text_of(current)} is {text_of(lowest)})"
    return f"{words}; nothing was changed"


def _counts(step: StepContext, number: int) -> str:
    """Compare the number of entities of each kind in the verifications before and after a change."""
    before = verifying.counts(step, Phase.COMPLETED, _purpose(number, "before"))
    after = verifying.counts(step, Phase.COMPLETED, _purpose(number, "after"))
    if before is None or after is None:
        return "the counts of the verification before are not kept any more"
    pairs = {kind: (before.get(kind, 0), after.get(kind, 0)) for kind in sorted(before | after)}
    moved = [f"{kind} {was} → {now}" for kind, (was, now) in pairs.items() if was != now]
    if moved:
        return f"numbers of entities before → after, clients' own changes included: {', '.join(moved)}"
    return f"{sum(after.values())} entities before and after, the same number of every kind"


def _purpose(number: int, when: str) -> str:
    return f"metadata-version-{number}-{when}"


def _some(words: list[str]) -> str:
    more = f" and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
    return "; ".join(words[:_NAMED]) + more


def _record(step: StepContext) -> MetadataVersionStatus:
    return step.status.metadata_version or MetadataVersionStatus()


def _validate(draft: Draft, wanted: int, upgrade: Upgrade, unseen: str = "") -> Wait:
    """Let the next observation ask the active controller to validate the level only."""
    message = f"the active controller validates metadata.version {text_of(wanted)}{unseen}"
    _set(draft, MetadataVersionState.VALIDATING, message, Reason.PROGRESSING, target=wanted, upgrade=upgrade)
    return Wait(message)


def _set_waiting(draft: Draft, message: str, wanted: int) -> Wait:
    _set(draft, MetadataVersionState.WAITING, message, Reason.WAITING, target=wanted)
    return Wait(message, requeue_after=timedelta(seconds=2))


def _refuse(
    draft: Draft, words: str, wanted: int | None, reason: Reason = Reason.REFUSED, upgrade: Upgrade | None = None
) -> Wait:
    if _record(draft).message != words:
        draft.tell(EventReason.REFUSED, words, EventType.WARNING)
    _set(draft, MetadataVersionState.REFUSED, words, reason, target=wanted, upgrade=upgrade)
    return Wait(words, WaitKind.USER, reason, stalled=True, requeue_after=ASK_AGAIN)


def _set(
    draft: Draft,
    state: MetadataVersionState,
    message: str,
    reason: Reason,
    *,
    target: int | None = None,
    upgrade: Upgrade | None = None,
) -> None:
    changes = {
        "state": state,
        "message": message[:1024],
        "target": None if target is None else name_of(target),
        "target_level": target,
        "upgrade": upgrade,
    }
    draft.update(metadata_version=_record(draft).model_copy(update=changes))
    value: Status = "False"
    if state is MetadataVersionState.IN_FORCE:
        value = "True"
    elif state is MetadataVersionState.OBSERVED:
        value = "Unknown"
    draft.set_condition(ConditionType.METADATA_VERSION_READY, value, reason, message)


def unable_template(item: StatefulSetState, finalized: int) -> str:
    """Return why a StatefulSet's next pods cannot run at level ``finalized``.

    Return ``""`` when they can or the image's name does not tell. Ready pods of the template's revision have registered
    with the quorum, so their own answers count instead of the image's tag.
    """
    settled = [pod for pod in item.pods if not pod.down and pod.revision == item.update_revision]
    software = release_of(item.image)
    if software is None or (item.observed and len(settled) == item.replicas):
        return ""
    protocol = item.settings.get("inter.broker.protocol.version", "")
    release = Release.of(protocol) if re.match(r"\d+\.\d+", protocol) else None
    level = effective_level(software, release, finalized)
    if level.cause not in (LevelCause.SOFTWARE_TOO_OLD, LevelCause.OUT_OF_RANGE):
        return ""
    return f"StatefulSet {item.name}: its template starts Kafka {software} by its image {item.image}; {level.cause}"
