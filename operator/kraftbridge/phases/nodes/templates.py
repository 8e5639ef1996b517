"""Compares, before a broker restarts, what it would start from with what a dry start has looked at. Pure.

A change of the pod template or of a ConfigMap or Secret reaches the brokers with their next restart, one by one, and
nobody looks. So a dry start looks at it first. Without a finding the roll goes on with it. With one, and where no copy
can show what changed, it stops until the change is taken back or accepted. A rollback says the same, and goes on after
`PATIENCE`: nothing else brings the brokers back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from kraftbridge.models.catalogue import Code
from kraftbridge.models.decision import EventReason, EventType
from kraftbridge.models.observation import StatefulSetState, TemplateSight, Unobserved
from kraftbridge.models.phase import Phase
from kraftbridge.models.status import (
    FindingStatus,
    MigrationStatus,
    TemplateChange,
    TemplateStatus,
    finding,
    first,
)
from kraftbridge.phases import observed, originals
from kraftbridge.phases.draft import Draft, StepContext, Wait, for_user
from kraftbridge.phases.preflight import dry_start
from kraftbridge.phases.preflight import findings as preflight

PATIENCE: Final = timedelta(minutes=10)
"""How long a rollback waits for a dry start and for the user."""
_KEPT: Final = 20
_SHOWN: Final = 6
_SEEN_OF_CONTAINER: Final = "image|imagePullPolicy|command|args|workingDir|env|envFrom|volumeMounts|securityContext"
_SEEN: Final = re.compile(
    rf"(?:{_SEEN_OF_CONTAINER}) of (?:init )?container (?P<container>.+)|order of every init container"
    r"|(?:securityContext|imagePullSecrets|runtimeClassName|enableServiceLinks) of the pod"
    r"|volume .+ \((?:configMap|secret|projected|downwardAPI)\)|ConfigMap .+|Secret .+"
)
"""Parts that a copy has, too (`builders.dry_start_pods`)."""


def starts_from_template(status: MigrationStatus) -> bool:
    """Return whether the operator restarts brokers in this phase, or is about to begin."""
    if status.phase.row.gives_back and status.given_back_at is not None:
        return False
    return status.phase.row.changes_brokers or status.phase is Phase.PROVISIONING_QUORUM


def record_templates(draft: Draft) -> Wait | None:
    """Record what the last dry start has looked at, right before the first broker restarts, and wait for nothing."""
    for stateful_set in observed.read_sets(draft):
        if stateful_set.template is not None:
            _record(draft, stateful_set.name, stateful_set.template)
    return None


def track(draft: Draft) -> None:
    """Forget a change that somebody has taken back."""
    for stateful_set in observed.read_sets(draft):
        known = _known(draft.status, stateful_set.name)
        present = stateful_set.template
        if known is None or known.change is None or present is None or known.digest != present.digest:
            continue
        _replace(draft, known.model_copy(update={"change": None}))
        _set_finding(draft, stateful_set.name)


def changed(step: StepContext, stateful_set: StatefulSetState) -> list[str]:
    """Return what somebody has changed since a dry start looked at a template; nothing where that is not known."""
    known = _known(step.status, stateful_set.name)
    present = stateful_set.template
    if known is None or present is None or known.digest == present.digest:
        return []
    return _changed_parts(known, present)


def blockers(step: StepContext, stateful_set: StatefulSetState) -> list[str]:
    """Return why a restart that was recorded must not begin any more."""
    parts = changed(step, stateful_set)
    return (
        [f"StatefulSet {stateful_set.name}: {first(parts, _SHOWN)} changed since a dry start looked"] if parts else []
    )


def ensure_looked_at(draft: Draft, stateful_set: StatefulSetState) -> Wait | None:
    """Return None once a dry start has looked at what a broker of this StatefulSet would start from."""
    name = stateful_set.name
    present = stateful_set.template
    known = _known(draft.status, name)
    if present is None:
        # Where the user's word leads on without the original state, running brokers need none; one that restarts does.
        is_lost = stateful_set in originals.lost(draft) and draft.status.phase.reversible
        return originals.wait(draft, stateful_set) if is_lost else None
    if known is None:
        # An earlier release of the operator began the roll.
        _record(draft, name, present)
        return None
    if known.digest == present.digest:
        return None
    parts = _changed_parts(known, present)
    change = known.change
    if change is None or change.digest != present.digest:
        seen_at = draft.now if change is None else change.seen_at
        change = TemplateChange(digest=present.digest, what=tuple(parts[:_KEPT]), seen_at=seen_at)
        _replace(draft, known.model_copy(update={"change": change}))
        words = f"StatefulSet {name}: somebody changed {first(parts, _SHOWN)}{_writer_of(stateful_set)}"
        draft.tell(EventReason.ALARM, f"{words}. A dry start looks at it before a broker restarts", EventType.WARNING)
        return Wait(f"{words}; a dry start looks at it before the next broker restarts")
    return _follow_change(draft, stateful_set, change, present, parts)


def _follow_change(
    draft: Draft, stateful_set: StatefulSetState, change: TemplateChange, present: TemplateSight, parts: list[str]
) -> Wait | None:
    name = stateful_set.name
    begun = f"before a broker of StatefulSet {name} restarts: somebody changed {first(parts, _SHOWN)}"
    waiting = _ensure_dry_start(draft, begun)
    standing = () if waiting is not None else _standing(draft, name, parts)
    _set_finding(draft, name, *(each for each in standing if each.code == Code.TEMPLATE_CHANGED))
    if standing:
        dry_start.repeat_dry_start(draft, draft.status.broker_ids, draft.status.cluster_id or "", standing)
        waiting = _stalled(begun, standing[0])
    if waiting is None:
        _record(draft, name, present)
        message = f"StatefulSet {name}: a dry start has looked at {first(parts, _SHOWN)}; brokers restart with it"
        draft.tell(EventReason.TEMPLATE_LOOKED_AT, message)
        return None
    if not _goes_back(draft.status):
        return waiting
    if draft.now - change.seen_at < PATIENCE:
        until = f"{change.seen_at + PATIENCE:%H:%M:%S}"
        message = f"{waiting.message}. The rollback goes on with it at {until} UTC in any case"
        return Wait(message, waiting.kind, waiting.reason, waiting.stalled, waiting.requeue_after)
    _record(draft, name, present)
    _set_finding(draft, name)
    draft.tell(EventReason.ALARM, f"The rollback goes on in spite of this: {waiting.message}", EventType.WARNING)
    return None


def _ensure_dry_start(draft: Draft, begun: str) -> Wait | None:
    """Return None once a dry start of the present templates has ended, or if there are none."""
    state = draft.observation.dry_start
    if isinstance(state, Unobserved):
        return Wait(f"{begun}: {state}")
    if state.off or not dry_start.awaited(draft):
        return None
    dry_start.begin_dry_start(draft, draft.status.broker_ids, draft.status.cluster_id or "")
    return Wait(f"{begun}. {dry_start.under_way(draft)}")


def _standing(step: StepContext, name: str, parts: list[str]) -> tuple[FindingStatus, ...]:
    """Return the findings about the changed template that the user does not accept."""
    state = step.observation.dry_start
    is_off = not isinstance(state, Unobserved) and state.off
    kafka = step.spec.brokers.container
    unseen = [part for part in parts if is_off or not _is_seen(part, kafka)]
    found = () if is_off else preflight.blocking(preflight.dry_start_findings(step))
    stateful_set = f"StatefulSet/{name}"
    if not unseen or step.spec.preflight.accepts(Code.TEMPLATE_CHANGED, stateful_set):
        return found
    shown = first(unseen, _SHOWN)
    return (finding(Code.TEMPLATE_CHANGED, stateful_set, changed=first(parts, _SHOWN), unseen=shown), *found)


def _is_seen(part: str, kafka: str) -> bool:
    """Return whether a copy of a pod shows what a part does: it has Kafka's container, and those that run before it."""
    match = _SEEN.fullmatch(part)
    if match is None:
        return False
    return " init container " in part or match["container"] in (None, kafka)


def _stalled(begun: str, standing: FindingStatus) -> Wait:
    return for_user(f"{begun}. {standing.sentence}")


def _writer_of(stateful_set: StatefulSetState) -> str:
    chart = ", ".join(f"{name} {value}" for name, value in sorted(stateful_set.chart.items()))
    writer = f" (last writer of the StatefulSet: {stateful_set.last_writer}" if stateful_set.last_writer else ""
    return f"{writer}; {chart})" if writer and chart else writer and f"{writer})"


def _goes_back(status: MigrationStatus) -> bool:
    undo = status.broker_undo
    goes_back = status.phase in (Phase.ROLLING_BACK, Phase.LEAVING_KAFKA4)
    return goes_back or (undo is not None and undo.finished_at is None)


# ------------------------------------------------------------------------------------------------- the record


def _known(status: MigrationStatus, stateful_set: str) -> TemplateStatus | None:
    return next((template for template in status.templates if template.stateful_set == stateful_set), None)


def _record(draft: Draft, name: str, sight: TemplateSight) -> None:
    looked_at = TemplateStatus(
        stateful_set=name, digest=sight.digest, parts=dict(sight.parts), secrets=dict(sight.secrets)
    )
    _replace(draft, looked_at)


def _set_finding(draft: Draft, name: str, *found: FindingStatus) -> None:
    """Replace the finding about one StatefulSet, by nothing if none is given."""
    standing = (each for each in draft.status.findings if each.code == Code.TEMPLATE_CHANGED)
    others = (each for each in standing if each.object != f"StatefulSet/{name}")
    draft.set_findings(Code.TEMPLATE_CHANGED, *others, *found)


def _replace(draft: Draft, template: TemplateStatus) -> None:
    others = {each.stateful_set: each for each in draft.status.templates}
    merged = {**others, template.stateful_set: template}
    draft.update(templates=tuple(each for _, each in sorted(merged.items())))


def _changed_parts(known: TemplateStatus, present: TemplateSight) -> list[str]:
    """Return the parts that differ. A Secret is named by its version, since its content is in the whole digest only."""
    parts = _differing(known.parts, present.parts)
    return parts + _differing(known.secrets, present.secrets) or ["a Secret"]


def _differing(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
