"""The UIDs of what a migration is about: an object with another UID than recorded is another object. Pure.

A backup that is restored brings objects back under their names and with new UIDs: the resource with the status of
another day, StatefulSets without lock and overlay, claims with the data of another day. What the status says is not
true of them. So nothing is done before the user says that they are what they were. Preflight and RolledBack claim
nothing of them, and record what is there. After the release of the StatefulSets in Completed they are their owner's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from kraftbridge.constants import UID_LENGTH
from kraftbridge.models.catalogue import Code
from kraftbridge.models.conditions import Reason, Status
from kraftbridge.models.decision import ApplyControllers, EventReason, EventType
from kraftbridge.models.observation import ControllersWorkload, Renamed, StatefulSetState, ZooKeeperState
from kraftbridge.models.status import (
    FindingStatus,
    RecordedObjects,
    RecordedStatefulSet,
    finding,
    first,
)
from kraftbridge.phases import observed
from kraftbridge.phases.draft import Draft, StepContext, Wait, for_user

_MOST_FINDINGS: Final = 20
_DIGITS: Final = 12
_GUARDED: Final = (Code.IDENTITY_CHANGED, Code.STATEFUL_SET_RENAMED)


@dataclass(frozen=True, slots=True)
class _Exchanged:
    """An object that has another UID than recorded."""

    object: str
    recorded: str
    present: str

    @property
    def is_resource(self) -> bool:
        """Whether it is the KafkaMigration itself."""
        return self.object.startswith("KafkaMigration/")


def refuse_others(draft: Draft) -> Wait | None:
    """Return the wait while an object is another one than recorded; record what is new, and in an open phase all."""
    exchanged = tuple(_exchanged(draft))
    renamed = _renamed(draft)
    if exchanged and not renamed and _are_accepted(draft, exchanged):
        names = first(each.object for each in exchanged)
        draft.tell(EventReason.ALARM, f"By spec.acceptedObjects, recorded anew: {names}", EventType.WARNING)
        _record(draft, anew=True)
        exchanged = ()
    found = (*renamed, *(_finding(each, exchanged) for each in exchanged[:_MOST_FINDINGS]))
    _set_findings(draft, found)
    if found:
        return _wait(found, exchanged)
    _record(draft, anew=draft.status.phase.row.is_open)
    _note_charts(draft)
    return None


def note_creation(draft: Draft) -> None:
    """Forget the UID of a controllers' StatefulSet that this step creates anew."""
    objects = draft.status.objects
    workload = draft.observation.controllers
    creates = any(isinstance(action, ApplyControllers) and not action.only for action in draft.actions)
    is_absent = isinstance(workload, ControllersWorkload) and workload.stateful_set is None
    if creates and is_absent and objects is not None and objects.controllers:
        draft.update(objects=objects.model_copy(update={"controllers": ""}))


def possible(step: StepContext) -> tuple[Status, Reason, str] | None:
    """Return status, reason and message of ``RollbackPossible`` while nothing is done, None otherwise."""
    exchanged = tuple(_exchanged(step))
    found = (*_renamed(step), *(_finding(each, exchanged) for each in exchanged[:1]))
    return ("False", Reason.IDENTITY_CHANGED, _wait(found, exchanged).message) if found else None


def _wait(found: tuple[FindingStatus, ...], exchanged: tuple[_Exchanged, ...]) -> Wait:
    more = [f"{each.object} ({each.recorded} became {each.present})" for each in exchanged[1:]]
    others = f". The same is true of {first(more)}" if more else ""
    return for_user(f"{found[0].object}: {found[0].reason}. {found[0].fix}{others}", Reason.IDENTITY_CHANGED)


def _exchanged(step: StepContext) -> Iterator[_Exchanged]:
    """Yield the objects that have another UID than recorded; none in a phase that claims nothing of them."""
    known = step.status.objects
    if step.status.phase.row.is_open:
        return
    recorded = _recorded_uid(step)
    if not step.identity.uid.startswith(recorded):
        yield _Exchanged(f"KafkaMigration/{step.identity.name}", recorded, step.identity.uid)
    if known is None:
        return
    stateful_set = observed.controllers_set(step)
    if known.controllers and stateful_set is not None and stateful_set.uid != known.controllers:
        yield _Exchanged(f"StatefulSet/{stateful_set.name}", known.controllers, stateful_set.uid)
    if is_given_back(step):
        return
    uids = {each.name: each.uid for each in known.stateful_sets}
    for item in _seen_sets(step):
        if uids.get(item.name, item.uid) != item.uid:
            yield _Exchanged(f"StatefulSet/{item.name}", uids[item.name], item.uid)
    for name, uid in sorted(_claims(step).items()):
        if known.claims.get(name, uid) != uid:
            yield _Exchanged(f"PersistentVolumeClaim/{name}", known.claims[name], uid)


def _recorded_uid(step: StepContext) -> str:
    """Return the recorded UID of the resource, or its beginning.

    An earlier release of the operator recorded it in the name of the controllers alone (`controllers_name`).
    """
    known = step.status.objects
    controllers = step.status.controllers
    if known is not None:
        return known.migration
    name = "" if controllers is None else controllers.name
    match = re.fullmatch(rf"{re.escape(step.identity.name)}-kraft-([^-]{{{UID_LENGTH}}})(?:-\d+)?", name)
    return match[1] if match else ""


def is_given_back(step: StepContext) -> bool:
    """Return whether the StatefulSets of brokers are their owner's again, after the migration."""
    return not step.status.phase.reversible and step.status.given_back_at is not None


def _seen_sets(step: StepContext) -> list[StatefulSetState]:
    """Return the StatefulSets of brokers that were read."""
    return [item for item in step.observation.stateful_sets if isinstance(item, StatefulSetState)]


def _claims(step: StepContext) -> dict[str, str]:
    return {name: uid for item in _seen_sets(step) for name, uid in item.claims.items()}


def _renamed(step: StepContext) -> tuple[FindingStatus, ...]:
    """Return a finding for each StatefulSet whose place another one has taken."""
    if step.status.phase.row.is_open or is_given_back(step):
        return ()
    return tuple(
        finding(Code.STATEFUL_SET_RENAMED, f"StatefulSet/{item.name}", other=item.other, signs=item.signs)
        for item in step.observation.stateful_sets
        if isinstance(item, Renamed)
    )


def _finding(each: _Exchanged, exchanged: tuple[_Exchanged, ...]) -> FindingStatus:
    way_out = _way_out(exchanged)
    return finding(Code.IDENTITY_CHANGED, each.object, recorded=each.recorded, present=each.present, way_out=way_out)


def _way_out(exchanged: tuple[_Exchanged, ...]) -> str:
    leave = (
        "delete the KafkaMigration with the annotation kraftbridge.dev/abandon=true, which leaves everything as it is"
    )
    if any(each.is_resource for each in exchanged):
        return (
            "The names of Secrets and controllers contain the recorded UID, so this resource cannot go on: "
            f"{leave}, and see docs/operations.md for what a restored cluster needs"
        )
    return (
        "If these objects have all of the data that the recorded ones had, "
        f"set spec.acceptedObjects to {_id_of(exchanged)}: they are recorded anew, and the migration goes on. "
        f"Otherwise {leave}"
    )


def _id_of(exchanged: tuple[_Exchanged, ...]) -> str:
    """Return the id of a change, which the user's word names: it holds for these UIDs and no others."""
    lines = (f"{each.object} {each.recorded} {each.present}" for each in exchanged)
    return sha256("\n".join(lines).encode()).hexdigest()[:_DIGITS]


def _are_accepted(step: StepContext, exchanged: tuple[_Exchanged, ...]) -> bool:
    may_be = not any(each.is_resource for each in exchanged)
    return may_be and step.spec.accepted_objects == _id_of(exchanged)


def _set_findings(draft: Draft, found: tuple[FindingStatus, ...]) -> None:
    for new in found:
        if new not in draft.status.findings:
            draft.tell(EventReason.ALARM, f"{new.object}: {new.reason}", EventType.WARNING)
    for code in _GUARDED:
        draft.set_findings(code, *(each for each in found if each.code == code))


# ------------------------------------------------------------------------------------------------- the record


def _record(draft: Draft, *, anew: bool) -> None:
    """Record what is not on record, or everything ``anew``; what was not read stays as it is recorded."""
    known = draft.status.objects
    if known is None:
        known = RecordedObjects(migration=draft.identity.uid)
    sets = {each.name: each for each in known.stateful_sets}
    present = {item.name: _recorded_set(item) for item in _seen_sets(draft) if anew or item.name not in sets}
    wanted = {ref.name for ref in draft.spec.brokers.stateful_sets}
    merged = {**sets, **present} if anew else {**present, **sets}
    record = {
        "migration": draft.identity.uid if draft.status.phase.row.is_open else known.migration,
        "cluster_id": _cluster_id(draft) or known.cluster_id,
        "stateful_sets": tuple(each for name, each in sorted(merged.items()) if name in wanted),
        "claims": _recorded_claims(draft, known, anew=anew),
        "controllers": _recorded_controllers(draft, known, anew=anew),
    }
    draft.update(objects=known.model_copy(update=record))


def _recorded_claims(step: StepContext, known: RecordedObjects, *, anew: bool) -> dict[str, str]:
    claims = _claims(step)
    if step.status.phase.row.is_open and observed.read_sets(step):
        return claims
    return dict(sorted({**known.claims, **claims}.items() if anew else {**claims, **known.claims}.items()))


def _recorded_controllers(step: StepContext, known: RecordedObjects, *, anew: bool) -> str:
    stateful_set = observed.controllers_set(step)
    if stateful_set is None:
        return "" if step.status.phase.row.is_open else known.controllers
    return stateful_set.uid if anew or not known.controllers else known.controllers


def _recorded_set(item: StatefulSetState) -> RecordedStatefulSet:
    return RecordedStatefulSet(name=item.name, uid=item.uid, selector=item.selector, chart=dict(item.chart))


def _cluster_id(step: StepContext) -> str:
    zookeeper = step.observation.zookeeper
    if not step.status.phase.row.is_open or not isinstance(zookeeper, ZooKeeperState):
        return ""
    return zookeeper.cluster_id or ""


# ------------------------------------------------------------------------------------------------- the chart


def _note_charts(draft: Draft) -> None:
    """Set the finding for each StatefulSet whose chart was upgraded since it was recorded."""
    objects = draft.status.objects
    if objects is None or not (observed.read_sets(draft) or is_given_back(draft)):
        return
    charts = {each.name: each.chart for each in objects.stateful_sets}
    sets = () if is_given_back(draft) else _seen_sets(draft)
    changed = {item.name: _changed_labels(charts.get(item.name, {}), item.chart) for item in sets}
    found = [
        finding(Code.CHART_CHANGED, f"StatefulSet/{name}", labels=words) for name, words in changed.items() if words
    ]
    for new in found:
        if new not in draft.status.findings:
            draft.tell(EventReason.ALARM, f"{new.object}: {new.reason}", EventType.WARNING)
    draft.set_findings(Code.CHART_CHANGED, *found)


def _changed_labels(before: Mapping[str, str], present: Mapping[str, str]) -> str:
    """Return which labels changed, in words; nothing while none was recorded."""
    names = sorted(before.keys() | present.keys()) if before else []
    changed = [name for name in names if before.get(name) != present.get(name)]
    return ", ".join(f"{name} {before.get(name, '(none)')} became {present.get(name, '(none)')}" for name in changed)
