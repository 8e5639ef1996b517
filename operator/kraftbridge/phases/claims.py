"""The claims of the voters' volumes: which are lost, which a person replaced, and which may be formatted. Pure.

A new claim is a blank volume, and a voter on a blank volume can elect a leader that lacks committed records: no volume
is formatted after the first time. A person may let one controller format its volume (``spec.controllers.reformat``)
while the other voters are a majority and hold the whole log. Once it has what they have, its claim is recorded, and the
word does not count any more.
"""

from __future__ import annotations

from kraftbridge.models.catalogue import Code
from kraftbridge.models.decision import EventReason, EventType
from kraftbridge.models.observation import ControllersWorkload, StatefulSetState
from kraftbridge.models.spec import ReformatSpec
from kraftbridge.models.status import ControllersStatus, Reformat, finding
from kraftbridge.phases import gates, observed
from kraftbridge.phases.draft import Draft, StepContext


def track(draft: Draft, controllers: ControllersStatus, workload: ControllersWorkload) -> ControllersStatus:
    """Record what became of the claims, and take or drop the word that a volume may be formatted; return the record."""
    controllers = _record_replaced(draft, controllers, workload)
    _set_findings(draft, controllers, workload)
    if controllers.format_allowed:
        return controllers
    return _record_word(draft, controllers, workload)


def _record_word(draft: Draft, controllers: ControllersStatus, workload: ControllersWorkload) -> ControllersStatus:
    """Take the user's word while it is safe, and end it once the controller serves."""
    word = draft.spec.controllers.reformat
    known = controllers.reformat
    hindrance = ""
    if word is None:
        wanted = None
    elif known is not None and _is_of(known, word) and known.ended_at is not None:
        wanted = known
    elif word.id in _serving_voters(draft, workload.stateful_set):
        wanted = Reformat(id=word.id, claim_uid=word.claim_uid, ended_at=draft.now)
    else:
        hindrance = _hindrance(draft, word, controllers, workload)
        wanted = None if hindrance else Reformat(id=word.id, claim_uid=word.claim_uid)
    _set_hindrance(draft, controllers, word, hindrance)
    if wanted == known:
        return controllers
    controllers = controllers.model_copy(update={"reformat": wanted})
    draft.update(controllers=controllers)
    return controllers


def _is_of(known: Reformat, word: ReformatSpec) -> bool:
    return (known.id, known.claim_uid) == (word.id, word.claim_uid)


def _hindrance(
    step: StepContext, word: ReformatSpec, controllers: ControllersStatus, workload: ControllersWorkload
) -> str:
    """Return why a controller must not format its volume, ``""`` if it may."""
    others = set(controllers.node_ids) - {word.id}
    if word.id not in controllers.node_ids:
        return f"no voter has this id; the voters are {', '.join(map(str, controllers.node_ids))}"
    if workload.claims is None:
        return "the claims were not read yet"
    present = workload.claims.get(word.id, "")
    if present != word.claim_uid:
        return f"its claim is {present or 'gone'}, not {word.claim_uid}"
    lost = [words for node_id, words in lost_claims(controllers, workload).items() if node_id in others]
    if lost:
        return f"of the claims of the other voters, {lost[0]}"
    if 2 * len(others) <= len(controllers.node_ids):
        return "the other voters are no majority"
    blockers = gates.quorum_blockers(step, without=word.id)
    return f"the other voters are not whole: {blockers[0]}" if blockers else ""


def _set_hindrance(draft: Draft, controllers: ControllersStatus, word: ReformatSpec | None, hindrance: str) -> None:
    if word is None or not hindrance:
        draft.set_findings(Code.CONTROLLER_NOT_REFORMATTED)
        return
    name = f"StatefulSet {controllers.name}"
    draft.set_findings(
        Code.CONTROLLER_NOT_REFORMATTED,
        finding(Code.CONTROLLER_NOT_REFORMATTED, name, controller=word.id, reason=hindrance),
    )


def _record_replaced(draft: Draft, controllers: ControllersStatus, workload: ControllersWorkload) -> ControllersStatus:
    """Record the claims of voters that a person replaced, once the quorum is whole: they hold what the others hold."""
    present = {str(node_id): uid for node_id, uid in (workload.claims or {}).items()}
    exchanged = {node_id: uid for node_id, uid in present.items() if controllers.volume_uids.get(node_id, uid) != uid}
    if not exchanged or controllers.format_allowed or gates.quorum_blockers(draft):
        return controllers
    if not set(map(int, exchanged)) <= _serving_voters(draft, workload.stateful_set):
        return controllers
    controllers = controllers.model_copy(update={"volume_uids": {**controllers.volume_uids, **exchanged}})
    draft.update(controllers=controllers)
    draft.tell(
        EventReason.CONTROLLER_REPLACED,
        f"Controller {', '.join(sorted(exchanged))} has caught up on another claim, which is recorded from now on",
    )
    return controllers


def _serving_voters(step: StepContext, stateful_set: StatefulSetState | None) -> set[int]:
    """Return the voters whose pod is Ready and that have loaded the metadata."""
    serving = set()
    for pod in () if stateful_set is None else stateful_set.pods:
        if not pod.down and observed.has_loaded(step, pod.ordinal):
            serving.add(pod.ordinal)
    return serving


def lost_claims(known: ControllersStatus, workload: ControllersWorkload) -> dict[int, str]:
    """Return what became of each recorded claim that is gone or exchanged, by node id; nothing while none was read."""
    claims = workload.claims
    if claims is None:
        return {}
    lost = {}
    for node_id, uid in sorted(known.volume_uids.items()):
        present = claims.get(int(node_id))
        if present is None:
            lost[int(node_id)] = f"that of controller {node_id} is gone"
        elif present != uid:
            lost[int(node_id)] = f"that of controller {node_id} is another one ({present}, not {uid})"
    return lost


def _set_findings(draft: Draft, controllers: ControllersStatus, workload: ControllersWorkload) -> None:
    if workload.claims is None or controllers.format_allowed:
        return
    lost = lost_claims(controllers, workload)
    if not lost:
        draft.set_findings(Code.CONTROLLER_CLAIMS_LOST)
        return
    claims = ", ".join(lost.values())
    claims_lost = finding(Code.CONTROLLER_CLAIMS_LOST, f"StatefulSet {controllers.name}", claims=claims)
    if claims_lost not in draft.status.findings:
        draft.tell(EventReason.ALARM, f"{claims_lost.object}: {claims_lost.reason}", EventType.WARNING)
    draft.set_findings(Code.CONTROLLER_CLAIMS_LOST, claims_lost)
