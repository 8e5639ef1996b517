"""metadata.version after the migration (KIP-778): refuse, validate, verify, change, wait until every node has applied it, verify. Pure.

Kafka allows no change while a ZooKeeper migration is under way, so nothing happens before `Phase.COMPLETED`, and nothing at all
without ``spec.metadataVersion``. The state in status is the record of intent: `CHANGING` is published before Kafka is asked.
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
    ControllersWorkload,
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

ASK_AGAIN = timedelta(seconds=15)
"""How often a refusal is looked at anew: nodes and metadata may have changed."""
_NAMED = 3

Nodes = Mapping[int, NodeFeatures]


def track(draft: Draft) -> None:
    """Keep in status at which level the cluster is and what every node supports; say that a wish waits for the migration's end."""
    known, wanted = draft.status.metadata_version, draft.spec.metadata_level
    if draft.status.phase is not Phase.COMPLETED:
        if wanted is not None:
            message = f"Kafka allows no change of metadata.version during a migration; {text_of(wanted)} is looked at in phase {Phase.COMPLETED}"
            _set(draft, MetadataVersionState.WAITING, message, Reason.WAITING, target=wanted)
        elif known is not None:
            _set(draft, MetadataVersionState.OBSERVED, "", Reason.NOT_ASKED, target=None)
        return
    nodes = _nodes(draft)
    if isinstance(nodes, str):
        return  # what was seen last stays
    current, controllers = _current(draft, nodes), draft.spec.controllers.node_ids
    levels = tuple(
        NodeLevels(
            id=i,
            role="controller" if i in controllers else "broker",
            finalized=name_of(n.finalized[FEATURE]) if FEATURE in n.finalized else "",
            lowest=name_of(n.supported.get(FEATURE, (0, 0))[0]),
            highest=name_of(n.supported.get(FEATURE, (0, 0))[1]),
        )
        for i, n in sorted(nodes.items())
    )
    record = known or MetadataVersionStatus()
    current_name = record.current if current is None else name_of(current)
    draft.update(metadata_version=record.model_copy(update={"current": current_name, "nodes": levels}))


def ensure_version(draft: Draft) -> Wait | None:
    """Bring metadata.version to ``spec.metadataVersion``; None when there is nothing (more) to do."""
    wanted, nodes = draft.spec.metadata_level, _nodes(draft)
    _drop_unless_wanted(draft, wanted)
    current = None if isinstance(nodes, str) else _current(draft, nodes)
    if current is not None and (words := _unable_templates(draft, current)):
        return _refuse(draft, words, wanted, Reason.SOFTWARE_TOO_OLD)
    if wanted is None:
        _set(
            draft,
            MetadataVersionState.OBSERVED,
            "spec.metadataVersion is not set: nothing is changed",
            Reason.NOT_ASKED,
        )
        return None
    if isinstance(nodes, str):
        return _set_waiting(draft, nodes, wanted)
    change = _record(draft).change
    if change is not None and change.finished_at is None:
        return _follow(draft, change, nodes)
    if current is None:
        return _set_waiting(draft, "the active controller has no image yet", wanted)
    if behind := _behind(nodes, current):
        return _set_waiting(draft, f"the active controller is at {text_of(current)}; {_some(behind)}", wanted)
    if current == wanted:
        message = f"metadata.version is {text_of(wanted)} on all {len(nodes)} nodes"
        _set(draft, MetadataVersionState.IN_FORCE, message, Reason.IN_FORCE, target=wanted)
        return None
    return _begin(draft, nodes, current, wanted)


def _drop_unless_wanted(draft: Draft, wanted: int | None) -> None:
    """Forget a change that is not finished and not wanted any more: nothing is sent on the strength of an old intent."""
    change = _record(draft).change
    if change is not None and change.finished_at is None and change.to_level != wanted:
        _forget_change(draft)


def _forget_change(draft: Draft) -> None:
    draft.update(metadata_version=_record(draft).model_copy(update={"change": None}))


def take_refused_change_back(draft: Draft) -> None:
    """Take a change back that Kafka refused although it had validated it: it is validated again before it is tried again."""
    change = _record(draft).change
    if draft.status.phase is Phase.COMPLETED and change is not None and change.finished_at is None:
        _forget_change(draft)
        _set(draft, MetadataVersionState.REFUSED, draft.refusal(), Reason.REFUSED, target=change.to_level)


def _begin(draft: Draft, nodes: Nodes, current: int, wanted: int) -> Wait:
    """Go through all that must hold before the change, and record it as intent when it does."""
    if unable := _unable(nodes, wanted, draft.spec.controllers.node_ids):
        words = f"metadata.version {text_of(wanted)} is refused: {_some(unable)}; nothing was changed"
        return _refuse(draft, words, wanted)
    if blockers := _not_settled(draft) or gates.quorum_blockers(draft) or _not_whole(draft):
        return _set_waiting(draft, f"before metadata.version is changed: {blockers[0]}", wanted)
    record, upgrade = _record(draft), Upgrade.between(current, wanted)
    number = record.changes + 1
    if record.state is MetadataVersionState.VERIFYING_BEFORE and record.target == name_of(wanted):
        if (
            waiting := verifying.ensure_verdict(draft, Profile.REPLICAS, Phase.COMPLETED, _purpose(number, "before"))
        ) is not None:
            return waiting
        # Kafka's word is asked for once more: the change is begun with both in the same step.
        return _validate(draft, wanted, upgrade)
    answer = draft.observation.feature_answer
    asked = record.state in (MetadataVersionState.VALIDATING, MetadataVersionState.REFUSED)
    if not asked or isinstance(answer, Unobserved) or (answer.level, answer.upgrade) != (wanted, upgrade):
        unseen = f"; {answer}" if asked and isinstance(answer, Unobserved) else ""
        return _validate(draft, wanted, upgrade, unseen)
    if not answer.accepted:
        return _refuse(draft, _kafkas_word(answer, current), wanted, upgrade=upgrade)
    if (
        waiting := verifying.ensure_verdict(draft, Profile.REPLICAS, Phase.COMPLETED, _purpose(number, "before"))
    ) is not None:
        _set(draft, MetadataVersionState.VERIFYING_BEFORE, waiting.message, Reason.PROGRESSING, target=wanted)
        return waiting
    quorum = draft.observation.quorum
    assert isinstance(quorum, QuorumState)  # `gates.quorum_blockers` has seen it
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


def _follow(draft: Draft, change: MetadataVersionChange, nodes: Nodes) -> Wait | None:
    """Follow a recorded change to its end: asked for until Kafka has it, applied by every node, verified."""
    wanted = change.to_level
    if _current(draft, nodes) != wanted:
        if draft.now - change.started_at > timedelta(seconds=draft.spec.verification.max_age_seconds):
            # What it was begun upon is no longer fresh: it goes through all of it again.
            _forget_change(draft)
            return _set_waiting(
                draft, "the change on record is too old to be asked for again; it is begun anew", wanted
            )
        return _send(draft, change)
    # Offsets tell a node that has applied this change from one that was at the same level before.
    if behind := _behind(nodes, wanted, int(change.after_offset)):
        verifying.launch_ahead(draft, Profile.REPLICAS, Phase.COMPLETED, _purpose(change.number, "after"))
        message = f"metadata.version {text_of(wanted)} is committed; {_some(behind)}"
        _set(draft, MetadataVersionState.CHANGING, message, Reason.PROGRESSING, target=wanted)
        return Wait(message)
    if change.applied_at is None:
        change = change.model_copy(update={"applied_at": draft.now})
        draft.update(metadata_version=_record(draft).model_copy(update={"change": change}))
    purpose = _purpose(change.number, "after")
    if (waiting := verifying.ensure_verdict(draft, Profile.REPLICAS, Phase.COMPLETED, purpose)) is not None:
        _set(draft, MetadataVersionState.VERIFYING_AFTER, waiting.message, Reason.PROGRESSING, target=wanted)
        return waiting
    counts = _counts(draft, change.number)
    change = change.model_copy(update={"finished_at": draft.now, "counts": counts})
    draft.update(metadata_version=_record(draft).model_copy(update={"change": change}))
    message = f"metadata.version went from {text_of(change.from_level)} to {text_of(wanted)} on all {len(nodes)} nodes; {counts}"
    _set(draft, MetadataVersionState.IN_FORCE, message, Reason.IN_FORCE, target=wanted)
    draft.tell(EventReason.METADATA_VERSION_CHANGED, message)
    return None


def _send(draft: Draft, change: MetadataVersionChange) -> Wait:
    """Ask for the change (again): it is the same change, and at its level already Kafka takes it as one more record."""
    draft.act(UpdateMetadataVersion(change.to_level, change.upgrade))
    because = f": {draft.failure()}" if draft.failure() else ""
    message = f"the active controller is asked for metadata.version {text_of(change.to_level)}{because}"
    _set(draft, MetadataVersionState.CHANGING, message, Reason.PROGRESSING, target=change.to_level)
    return Wait(message)


# ------------------------------------------------------------------------------------------------ what must hold


def _nodes(step: StepContext) -> Nodes | str:
    """Return the features of every controller and of every broker that Metadata lists, or who did not tell."""
    features, cluster = step.observation.features, step.observation.cluster
    for part in (features, cluster):
        if isinstance(part, Unobserved):
            return str(part)
    assert not isinstance(features, Unobserved)
    assert not isinstance(cluster, Unobserved)
    seen: dict[int, NodeFeatures] = {}
    for node in (*step.spec.controllers.node_ids, *sorted(cluster.brokers)):
        one = features.get(node, Unobserved(f"node {node}", "its features were not asked"))
        if isinstance(one, Unobserved):
            return str(one)
        seen[node] = one
    return seen


def _current(step: StepContext, nodes: Nodes) -> int | None:
    """Return the level that the active controller has finalized; None while nobody leads or its image is not loaded."""
    quorum = step.observation.quorum
    leader = nodes.get(quorum.leader_id) if isinstance(quorum, QuorumState) else None
    return leader.finalized.get(FEATURE) if leader is not None else None


def _behind(nodes: Nodes, level: int, after_offset: int = -1) -> list[str]:
    behind = []
    for node, features in sorted(nodes.items()):
        own = features.finalized.get(FEATURE)
        if own != level:
            behind.append(f"node {node} is at {'no level yet' if own is None else text_of(own)}")
        elif features.finalized_epoch < after_offset:
            behind.append(f"node {node} has applied the log up to {features.finalized_epoch}, before the change")
    return behind


def _unable(nodes: Nodes, level: int, controllers: tuple[int, ...]) -> list[str]:
    unable = []
    for node, features in sorted(nodes.items()):
        lowest, highest = features.supported.get(FEATURE, (0, 0))
        if not lowest <= level <= highest:
            role = "controller" if node in controllers else "broker"
            unable.append(f"{role} {node} supports {text_of(lowest)} to {text_of(highest)}")
    return unable


def _all_sets(step: StepContext) -> tuple[StatefulSetState, ...] | Unobserved:
    sets, workload = step.stateful_sets(), step.observation.controllers
    if isinstance(sets, Unobserved):
        return sets
    if not isinstance(workload, ControllersWorkload):
        return workload
    return sets if workload.stateful_set is None else (*sets, workload.stateful_set)


def _unable_templates(step: StepContext, level: int) -> str:
    """Return which StatefulSet would start a Kafka that cannot follow ``level``, before its pods show it by shutting down."""
    sets = _all_sets(step)
    if isinstance(sets, Unobserved):
        return ""
    found = [words for item in sets if (words := unable_template(item, level))]
    return f"metadata.version is {text_of(level)}: {_some(found)}" if found else ""


def _not_settled(step: StepContext) -> list[str]:
    """Every pod runs what its template renders now: what starts next is then what was asked for its range."""
    sets = _all_sets(step)
    if isinstance(sets, Unobserved):
        return [str(sets)]
    blockers = []
    for item in sets:
        if not item.observed or len(item.pods) != item.replicas:
            blockers.append(
                f"StatefulSet {item.name} has {len(item.pods)} of {item.replicas} pods, or a change that is not taken up"
            )
        for pod in item.pods:
            if pod.revision != item.update_revision:
                blockers.append(
                    f"pod {pod.name} does not run what StatefulSet {item.name} renders now; finish its roll"
                )
            elif pod.deleting or not pod.ready:
                blockers.append(f"pod {pod.name} is not Ready{': ' + pod.trouble if pod.trouble else ''}")
    return blockers


def _not_whole(step: StepContext) -> list[str]:
    """Every registered broker is unfenced and listed by Metadata, every ISR is full, and the migration is over on every voter."""
    cluster, active = step.observation.cluster, step.observation.active_controller
    if isinstance(cluster, Unobserved) or active is None:
        return [str(cluster) if isinstance(cluster, Unobserved) else "no single active controller answers"]
    blockers = gates.migration_state_blockers(step, ZkMigrationState.POST_MIGRATION)
    if active.fenced_brokers:
        blockers.append(f"{active.fenced_brokers} registered broker(s) are fenced: start them, or unregister them")
    if active.active_brokers != len(cluster.brokers):
        blockers.append(
            f"{active.active_brokers} brokers are registered and unfenced, Metadata lists {len(cluster.brokers)}"
        )
    if cluster.offline_count or cluster.under_replicated_count:
        blockers.append(
            f"{cluster.offline_count} partition(s) have no leader, {cluster.under_replicated_count} wait for their full ISR"
        )
    return blockers


# ------------------------------------------------------------------------------------------------ words and status


def _kafkas_word(answer: FeatureAnswer, current: int) -> str:
    words = f"Kafka refuses metadata.version {text_of(answer.level)}: {answer.words}"
    lowest = lowest_without_loss(current)
    if answer.upgrade is Upgrade.SAFE_DOWNGRADE and answer.level < lowest:
        words += f" (from {text_of(current)} the way without loss ends at {text_of(lowest)})"
    return f"{words}; nothing was changed"


def _counts(step: StepContext, number: int) -> str:
    """Return how the number of entities of each kind compares between the verifications before and after a change."""
    before, after = (verifying.counts(step, Phase.COMPLETED, _purpose(number, when)) for when in ("before", "after"))
    if before is None or after is None:
        return "the counts of the verification before are not kept any more"
    moved = [
        f"{k} {before.get(k, 0)} → {after.get(k, 0)}"
        for k in sorted(before | after)
        if before.get(k, 0) != after.get(k, 0)
    ]
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
    """Let the next look ask the active controller to validate only."""
    message = f"the active controller is asked whether it would take metadata.version {text_of(wanted)}{unseen}"
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
    """Return what a StatefulSet's next pods cannot do, ``""`` when they can, when nothing tells, or when its pods have shown that they can.

    Pods that run the template's revision and are Ready have registered with the quorum: what they said themselves counts, not a tag.
    """
    settled = [p for p in item.pods if p.ready and not p.deleting and p.revision == item.update_revision]
    software = release_of(item.image)
    if software is None or (item.observed and len(settled) == item.replicas):
        return ""
    protocol = item.settings.get("inter.broker.protocol.version", "")
    found = effective_level(software, Release.of(protocol) if re.match(r"\d+\.\d+", protocol) else None, finalized)
    if found.cause not in (LevelCause.SOFTWARE_TOO_OLD, LevelCause.OUT_OF_RANGE):
        return ""
    return f"StatefulSet {item.name}: its template starts Kafka {software} by its image {item.image}; {found.cause}"
