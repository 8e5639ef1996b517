"""The certificate that a process uses counts: renewed ones reach every voter, those in use are told with their date, and voters with one that has ended restart all at once, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.support.observations import (
    LEASE,
    NEEDED,
    NOW,
    Situation,
    broker_set,
    cluster,
    controller_metrics,
    issued_listener,
    open_gate,
    rolling,
    seen_secrets,
)
from tests.unit.phases.test_controller_change import SAFE, before_of, restarted

from kraftbridge.models.conditions import Condition, ConditionType, Reason, condition
from kraftbridge.models.decision import ApplyControllers, Decision, IssueListenerCertificates, RestartPod
from kraftbridge.models.issued import IssuedSecret, PresentedCertificate
from kraftbridge.models.observation import ControllersWorkload, MigrationZnode, StatefulSetState, Unobserved
from kraftbridge.models.phase import BrokerMode, Phase, Target, ZkMigrationState
from kraftbridge.models.spec import ListenerSpec
from kraftbridge.models.status import HandOverStatus, Operation, OperationKind, QuorumRestart
from kraftbridge.phases import expired, machine
from kraftbridge.phases.basis import intent

VOTERS = (3000, 3001, 3002)
OLD, NEW = "0" * 16, "1" * 16
TLS = Unobserved("quorum", "certificate verify failed: certificate has expired")
KEY = "key of the authority"


def known(decision: Decision, kind: ConditionType) -> Condition:
    found = condition(decision.status.conditions, kind)
    assert found is not None
    return found


def issuing(fine: Situation, **listener: Any) -> Situation:
    """Return the same with certificates that the operator issues; the Secret holds a renewed one."""
    fields = {"security_protocol": "SSL", "generate": True} | listener
    controllers = fine.spec.controllers.model_copy(update={"listener": ListenerSpec(**fields)})
    secret = IssuedSecret(
        "demo-controllers", exists=True, begins_at=NOW - timedelta(days=1), expires_at=NOW + timedelta(days=1800), fingerprint=NEW
    )  # fmt: skip
    return fine.asking(controllers=controllers).observing(
        issued=replace(issued_listener(controllers=secret), authority_key=KEY), server_time=NOW
    )


def workload_of(situation: Situation) -> ControllersWorkload:
    workload = situation.observation.controllers
    assert isinstance(workload, ControllersWorkload)
    return workload


def set_of(situation: Situation) -> StatefulSetState:
    stateful_set = workload_of(situation).stateful_set
    assert stateful_set is not None
    return stateful_set


def running_with(situation: Situation, ends_at: datetime, old: tuple[int, ...] = VOTERS) -> Situation:
    """Return the same with voters that started with these Secrets; ``old`` of them present a former certificate."""
    status = situation.status.controllers
    assert status is not None
    rendered = before_of(situation).model_copy(update={"credentials": {"listener": "1"}})
    workload = replace(
        workload_of(situation),
        secrets=seen_secrets({"listener": "2"}),
        claims={i: f"pvc-{i}" for i in VOTERS},
        missing=(),
    )
    former = (OLD, ends_at - timedelta(days=1800), ends_at)
    renewed = (NEW, NOW - timedelta(days=1), NOW + timedelta(days=1800))
    shown = {p.ordinal: PresentedCertificate(p.process, *(former if p.ordinal in old else renewed)) for p in set_of(situation).pods}  # fmt: skip
    sets = tuple(i if isinstance(i, Unobserved) else replace(i, lease=LEASE) for i in situation.observation.stateful_sets)  # fmt: skip
    return situation.with_status(controllers=status.model_copy(update={"rendered": rendered})).observing(
        controllers=workload, presented=shown, stateful_sets=sets
    )


def ended(situation: Situation, **changes: Any) -> Situation:
    """Return the same with voters whose certificate ended a minute ago, and a quorum that nobody can ask."""
    return running_with(issuing(situation, **changes), NOW - timedelta(minutes=1)).observing(quorum=TLS)


def walked(situation: Situation, steps: int, seconds: float = 60.0, until: Callable[[Decision], bool] = bool) -> tuple[Situation, list[Decision]]:  # fmt: skip
    decisions = []
    for _ in range(steps):
        decision = situation.decide()
        decisions.append(decision)
        offset = decision.status.migration_offset
        situation = situation.after(decision).later(seconds)
        situation = situation.observing(server_time=situation.now)
        if offset is not None:
            moved = offset.model_copy(update={"seen_at": situation.now, "moved_at": situation.now})
            situation = situation.with_status(migration_offset=moved)
    return situation, decisions


def restarts_of(decisions: list[Decision]) -> list[int]:
    return [node for decision in decisions for node in restarted(decision)]


def replaced(situation: Situation, nodes: tuple[int, ...] = VOTERS) -> Situation:
    """Return the same once these pods were replaced, and present what the Secret holds."""
    stateful_set = set_of(situation)
    pods = tuple(
        replace(p, uid=f"new-{p.ordinal}", revision=stateful_set.update_revision) if p.ordinal in nodes else p
        for p in stateful_set.pods
    )
    workload = replace(workload_of(situation), stateful_set=replace(stateful_set, pods=pods))
    shown = situation.observation.presented
    assert not isinstance(shown, Unobserved)
    renewed = {p.ordinal: PresentedCertificate(p.process, NEW, NOW - timedelta(days=1), NOW + timedelta(days=1800)) for p in pods if p.ordinal in nodes}  # fmt: skip
    return situation.observing(controllers=workload, presented={**shown, **renewed})


# ------------------------------------------------------------------------------------- a renewal reaches each voter


COMPLETED = open_gate(Phase.COMPLETED).with_status(given_back_at=NOW)


def _scaled(fine: Situation) -> Situation:
    own = broker_set(BrokerMode.KRAFT)
    views = cluster(brokers=frozenset({0, 1}))
    return fine.observing(
        stateful_sets=(replace(own, pods=own.pods[:2], lock="", replicas=2),),
        cluster=views,
        cluster_by_broker={0: views, 1: views},
        metrics=controller_metrics(ZkMigrationState.POST_MIGRATION, 0, 2),
    )


def _rendered_by_its_owner(fine: Situation) -> Situation:
    own = broker_set(BrokerMode.KRAFT, lock="")
    pods = tuple(replace(p, configuration="") for p in own.pods)
    return fine.observing(stateful_sets=(replace(own, configuration="", pods=pods),))


def _moved(fine: Situation) -> Situation:
    return fine.observing(stateful_sets=(Unobserved("StatefulSet kafka/kafka", "it does not exist"),))


def _alarming(fine: Situation) -> Situation:
    lacking = replace(broker_set(BrokerMode.KRAFT, lock=""), lacking=("KAFKA_PROCESS_ROLES=broker",))
    guarded = HandOverStatus(guarded=True, stateful_sets=(NEEDED,))
    return fine.with_status(hand_over=guarded).observing(stateful_sets=(lacking,))


def _with_an_offline_partition(fine: Situation) -> Situation:
    return fine.observing(cluster=cluster(offline=("t-0",), offline_count=1))


COMPLETED_WORLDS = [lambda fine: fine, _scaled, _rendered_by_its_owner, _moved, _alarming, _with_an_offline_partition]
WORLD_IDS = ["baseline", "scaled", "rendered by its owner", "moved", "alarm of the hand-over", "offline partition"]


def rolled(situation: Situation) -> tuple[list[int], list[Decision], Situation]:
    """Let each restart happen; return the voters in their order."""
    order: list[int] = []
    decisions: list[Decision] = []
    for _ in range(40):
        decision = situation.decide()
        decisions.append(decision)
        situation = situation.after(decision).later(5)
        if any(isinstance(a, ApplyControllers) for a in decision.actions):
            stateful_set = set_of(situation)
            pods = tuple(replace(p, revision="older") for p in stateful_set.pods)
            situation = situation.observing(
                controllers=replace(workload_of(situation), stateful_set=replace(stateful_set, pods=pods))
            )
        nodes = tuple(n for n in restarted(decision) if n in VOTERS)
        assert len(nodes) <= 1
        if nodes:
            order += nodes
            situation = replaced(situation, nodes)
    return order, decisions, situation


@pytest.mark.parametrize("world", COMPLETED_WORLDS, ids=WORLD_IDS)
def test_a_renewed_certificate_reaches_every_voter_whatever_became_of_the_brokers(
    world: Callable[[Situation], Situation],
) -> None:
    fine = running_with(issuing(world(COMPLETED)), NOW + timedelta(days=600))
    order, decisions, after = rolled(fine)
    assert order == [3001, 3002, 3000]
    assert after.status.controllers is not None
    assert after.status.controllers.change is None
    last = known(decisions[-1], ConditionType.CERTIFICATES_VALID)
    assert last.status == "True"
    if world is _alarming:
        assert known(decisions[5], ConditionType.STALLED).reason is Reason.TEMPLATE_NOT_KRAFT


def test_a_set_that_could_not_be_read_is_not_one_that_is_gone() -> None:
    silent = COMPLETED.observing(stateful_sets=(Unobserved("StatefulSet kafka/kafka", "timeout"),))
    order, _, _ = rolled(running_with(issuing(silent), NOW + timedelta(days=600)))
    assert order == [], "its Lease is not ours"


@pytest.mark.parametrize("owner", ["handed over", "written by another"])
def test_a_renewal_writes_no_stateful_set_that_its_owner_may_have_adopted(owner: str) -> None:
    fine = running_with(issuing(COMPLETED), NOW + timedelta(days=600))
    if owner == "handed over":
        fine = fine.with_status(hand_over=HandOverStatus(guarded=False, ended_at=NOW - timedelta(days=30)))
    stateful_set = replace(set_of(fine), update_revision="the owner's", drift=("configuration",))
    if owner != "handed over":
        stateful_set = replace(stateful_set, last_writer="helm (Apply at 2026-01-01T00:00:00Z)")
    fine = fine.observing(controllers=replace(workload_of(fine), stateful_set=stateful_set))
    order, decisions, after = rolled(fine)
    assert order == [3001, 3002, 3000]
    assert not [a for d in decisions for a in d.actions if isinstance(a, ApplyControllers)]
    assert after.status.controllers is not None
    assert after.status.controllers.change is None
    assert after.status.controllers.rendered is not None
    assert after.status.controllers.rendered.credentials == {"listener": "2"}


@pytest.mark.parametrize("fine", SAFE, ids=[s.status.phase for s in SAFE])
def test_in_a_pause_the_secret_is_renewed_and_nothing_restarts_until_somebody_is_asked(fine: Situation) -> None:
    paused = issuing(fine).asking(paused=True)
    due = IssuedSecret("demo-controllers", exists=True, expires_at=NOW + timedelta(days=600), due=True, fingerprint=OLD)
    decision = paused.observing(issued=issued_listener(controllers=due)).decide()
    assert IssueListenerCertificates() in decision.actions
    assert known(decision, ConditionType.STALLED).status == "False"
    end = NOW + timedelta(days=20)
    far = running_with(paused, end)
    _, decisions = walked(far, 20, 86_400)
    assert restarts_of(decisions) == []
    stalled = [known(d, ConditionType.STALLED) for d in decisions]
    days = [n for n, c in enumerate(stalled) if c.status == "True" and c.reason is Reason.CERTIFICATE_ENDS]
    assert days[0] == 6, "from fourteen days before the end"
    assert f"{end:%Y-%m-%d %H:%M:%S} UTC" in stalled[6].message
    assert "no controller restarts while spec.paused is true" in stalled[6].message


@pytest.mark.parametrize("fine", SAFE, ids=[s.status.phase for s in SAFE])
def test_whatever_holds_a_renewal_up_is_told_fourteen_days_before_the_end(fine: Situation) -> None:
    held = running_with(issuing(fine), NOW + timedelta(days=13)).observing(quorum=Unobserved("quorum", "no leader"))
    decision = held.decide()
    stalled = known(decision, ConditionType.STALLED)
    assert stalled.status == "True"
    assert (
        "The certificate that controller 3000, 3001, 3002 uses at the controllers' listener ends at" in stalled.message
    )
    early = running_with(issuing(fine), NOW + timedelta(days=15)).observing(quorum=Unobserved("quorum", "no leader"))
    assert "ends at" not in known(early.decide(), ConditionType.STALLED).message


def test_a_short_lifetime_is_warned_about_in_its_last_quarter() -> None:
    fine = issuing(COMPLETED).asking(paused=True)
    begins = NOW - timedelta(seconds=200)  # of which a renewal is due
    shown = {p.ordinal: PresentedCertificate(p.process, OLD, begins, begins + timedelta(minutes=5)) for p in set_of(fine).pods}  # fmt: skip
    renewed = running_with(fine, NOW + timedelta(days=1)).observing(presented=shown)
    assert known(renewed.decide(), ConditionType.STALLED).status == "False"
    assert known(renewed.observing(server_time=NOW + timedelta(seconds=26)).decide(), ConditionType.STALLED).status == "True"  # fmt: skip


# ------------------------------------------------------------------------------------- what a process presents


def test_what_is_presented_is_recorded_with_its_first_sight() -> None:
    fine = running_with(issuing(COMPLETED), NOW + timedelta(days=600))
    decision = fine.decide()
    (first, *_) = decision.status.presented
    assert (first.node_id, first.fingerprint, first.expires_at, first.seen_at) == (3000, OLD, NOW + timedelta(days=600), NOW)  # fmt: skip
    later = fine.after(decision).later(60).decide()
    assert later.status.presented == decision.status.presented
    silent = fine.after(decision).observing(presented=Unobserved("certificates", "timeout")).later(60).decide()
    assert silent.status.presented == decision.status.presented, "a process presents what it presented before"
    other = replaced(fine.after(decision), (3000,)).observing(presented={}).later(60).decide()
    assert [p.node_id for p in other.status.presented] == [3001, 3002], "of another process nothing is known"


def test_the_condition_tells_the_date_of_the_process_and_not_that_of_the_secret() -> None:
    end = NOW + timedelta(days=600)
    said = known(running_with(issuing(COMPLETED), end).decide(), ConditionType.CERTIFICATES_VALID)
    assert said.status == "True"
    assert f"{end:%Y-%m-%d}" in said.message
    unread = running_with(issuing(COMPLETED), end).observing(presented={3000: Unobserved("certificate of controller 3000", "timeout")})  # fmt: skip
    said = known(unread.decide(), ConditionType.CERTIFICATES_VALID)
    assert (said.status, said.reason) == ("Unknown", Reason.UNKNOWN)
    assert "timeout" in said.message
    plain = COMPLETED.asking(
        controllers=COMPLETED.spec.controllers.model_copy(
            update={"listener": ListenerSpec(security_protocol="PLAINTEXT")}
        )
    )
    assert known(plain.decide(), ConditionType.CERTIFICATES_VALID).reason is Reason.NOT_ASKED


def _held(fine: Situation, fingerprint: str, begins: datetime, ends: datetime) -> Situation:
    issued = fine.observation.issued
    assert not isinstance(issued, Unobserved)
    assert issued is not None
    secret = IssuedSecret("demo-brokers", exists=True, begins_at=begins, expires_at=ends, fingerprint=fingerprint)
    return fine.observing(issued=replace(issued, brokers=secret))


def _started(fine: Situation, at: datetime, nodes: tuple[int, ...] = (0, 1, 2)) -> Situation:
    (item,) = fine.observation.stateful_sets
    assert not isinstance(item, Unobserved)
    pods = tuple(replace(p, ready_since=at, running_since=at) if p.ordinal in nodes else p for p in item.pods)
    return fine.observing(stateful_sets=(replace(item, pods=pods),))


@pytest.mark.parametrize("phase", [Phase.DUAL_WRITE, Phase.AWAITING_FINALIZATION, Phase.COMPLETED])
def test_brokers_use_what_their_secret_held_when_they_started(phase: Phase) -> None:
    begun = NOW - timedelta(days=100)
    loaded = NOW + timedelta(days=30)
    fine = issuing(open_gate(phase).with_status(given_back_at=NOW if phase is Phase.COMPLETED else None))
    fine = _started(_held(fine, OLD, begun, loaded), NOW - timedelta(days=1))
    decision = fine.decide()
    certificates = decision.status.listener_certificates
    assert certificates is not None
    assert (certificates.brokers_run_until, certificates.brokers_to_restart) == (loaded, ())
    renewed = _held(fine.after(decision).later(3600), NEW, NOW, NOW + timedelta(days=1800))
    decision = renewed.decide()
    certificates = decision.status.listener_certificates
    assert certificates is not None
    assert certificates.brokers_expire_at == NOW + timedelta(days=1800)
    assert certificates.brokers_run_until == loaded, "the processes have the former one"
    assert certificates.brokers_to_restart == ("kafka-0", "kafka-1", "kafka-2")
    near = renewed.after(decision).later(17 * 86_400)
    near = near.observing(server_time=near.now)
    stalled = known(near.decide(), ConditionType.STALLED)
    assert stalled.status == "True"
    assert f"{loaded:%Y-%m-%d %H:%M:%S} UTC" in stalled.message
    assert "Restart these brokers one at a time" in stalled.message
    some = _started(near.after(near.decide()), near.now, (0, 1)).later(10)
    certificates = some.decide().status.listener_certificates
    assert certificates is not None
    assert certificates.brokers_to_restart == ("kafka-2",)
    assert certificates.brokers_run_until == loaded
    whole = _started(some.after(some.decide()), near.now, (2,)).later(10)
    decision = whole.decide()
    certificates = decision.status.listener_certificates
    assert certificates is not None
    assert (certificates.brokers_run_until, certificates.brokers_to_restart) == (NOW + timedelta(days=1800), ())


def test_a_broker_that_started_about_the_time_of_a_renewal_is_taken_for_one_with_the_former() -> None:
    """A container finds what the kubelet has mounted, which may be minutes old."""
    fine = _held(issuing(COMPLETED), OLD, NOW - timedelta(days=10), NOW + timedelta(days=30))
    decision = _started(fine, NOW - timedelta(days=1)).decide()
    renewed = _held(fine.after(decision), NEW, NOW, NOW + timedelta(days=1800))
    decision = _started(renewed, NOW + timedelta(seconds=30)).decide()
    certificates = decision.status.listener_certificates
    assert certificates is not None
    assert certificates.brokers_run_until == NOW + timedelta(days=30)


def test_of_brokers_from_before_the_record_the_end_is_not_known() -> None:
    """As after an upgrade of the operator: the Secret was renewed, and these brokers are older."""
    fine = _started(_held(issuing(COMPLETED), NEW, NOW - timedelta(days=10), NOW + timedelta(days=1800)), NOW - timedelta(days=500))  # fmt: skip
    fine = running_with(fine, NOW + timedelta(days=1800), ())
    said = known(fine.decide(), ConditionType.CERTIFICATES_VALID)
    assert (said.status, said.reason) == ("Unknown", Reason.UNKNOWN)
    assert "Restart them" in said.message


def test_brokers_that_log_in_present_no_certificate() -> None:
    fine = issuing(COMPLETED, security_protocol="SASL_SSL")
    fine = _started(_held(fine, OLD, NOW - timedelta(days=10), NOW + timedelta(days=5)), NOW - timedelta(days=1))
    decision = fine.decide()
    assert decision.status.listener_certificates is not None
    assert decision.status.listener_certificates.brokers_run_until is None
    assert known(decision, ConditionType.STALLED).status == "False"


# ------------------------------------------------------------------------------------- certificates that have ended


@pytest.mark.parametrize("fine", SAFE, ids=[s.status.phase for s in SAFE])
def test_voters_whose_certificate_has_ended_restart_all_at_once_and_once(fine: Situation) -> None:
    case = ended(fine)
    begun = case.decide()
    assert restarted(begun) == [], "the intent is on record before the act"
    record = begun.status.quorum_restart
    assert record is not None
    assert set(record.pods) == {"3000", "3001", "3002"}
    assert record.certificate == NEW
    acting = case.after(begun).later(1)
    decision = acting.decide()
    assert restarted(decision) == [3000, 3001, 3002]
    assert {a.ready for a in decision.actions if isinstance(a, RestartPod)} == {False}, (
        "no budget holds one of them back"
    )
    assert intent(decision.status) != intent(begun.status)
    again = acting.after(decision).later(1).decide()
    assert restarted(again) == [3000, 3001, 3002], "pods that are still there are asked again"
    back = replaced(acting.after(again).later(20))
    waiting = back.decide()
    assert restarted(waiting) == []
    assert "all controllers restart, since their certificate had ended" in waiting.status.message
    led = back.after(waiting).observing(quorum=fine.observation.quorum).later(5)
    _, decisions = walked(led, 3, 5)
    record = decisions[-1].status.quorum_restart
    assert record is not None
    assert record.finished_at is not None
    controllers = decisions[-1].status.controllers
    assert controllers is not None
    assert controllers.change is None, "what they run with is no change any more"
    assert not set(restarts_of(decisions)) & set(VOTERS)


@pytest.mark.parametrize("fine", SAFE, ids=[s.status.phase for s in SAFE])
def test_without_a_leader_in_time_somebody_is_asked_and_nothing_restarts_again(fine: Situation) -> None:
    case = ended(fine)
    begun = case.decide()
    acted = case.after(begun).later(1)
    gone = replaced(acted.after(acted.decide()))
    _, decisions = walked(gone, 60, 60)
    assert not set(restarts_of(decisions)) & set(VOTERS)
    assert known(decisions[5], ConditionType.STALLED).status == "False"
    late = known(decisions[-1], ConditionType.STALLED)
    assert (late.status, late.reason) == ("True", Reason.DEADLINE_EXCEEDED)


def test_in_completed_the_leases_are_taken_before_anything_restarts() -> None:
    case = ended(COMPLETED)
    (item,) = case.observation.stateful_sets
    assert not isinstance(item, Unobserved)
    case = case.observing(stateful_sets=(replace(item, lease=replace(LEASE, ours=False, holder="")),))
    begun = case.decide()
    held = case.after(begun).later(1).decide()
    assert restarted(held) == []
    assert restarted(case.after(held).observing(stateful_sets=(item,)).later(1).decide()) == [3000, 3001, 3002]


@pytest.mark.parametrize("world", COMPLETED_WORLDS, ids=WORLD_IDS)
def test_ended_certificates_are_replaced_whatever_became_of_the_brokers(
    world: Callable[[Situation], Situation],
) -> None:
    case = ended(world(COMPLETED))
    assert restarts_of(walked(case, 2, 1)[1]) == [3000, 3001, 3002]


def _lost_claim(case: Situation) -> Situation:
    return case.observing(controllers=replace(workload_of(case), claims={3000: "pvc-3000", 3001: "pvc-3001"}))


def _with_secret(case: Situation, **changes: Any) -> Situation:
    issued = case.observation.issued
    assert not isinstance(issued, Unobserved)
    assert issued is not None
    return case.observing(issued=replace(issued, controllers=replace(issued.controllers, **changes)))


def _with_key(case: Situation) -> Situation:
    issued = case.observation.issued
    assert not isinstance(issued, Unobserved)
    assert issued is not None
    decision = case.asking(paused=True).decide()
    return case.after(decision).observing(issued=replace(issued, authority_key="another key"))


def _broker_restarts(case: Situation) -> Situation:
    operation = Operation(kind=OperationKind.RESTART_BROKER, node_id=2, pod="kafka-2", pod_uid="gone", started_at=NOW)
    (item,) = case.observation.stateful_sets
    assert not isinstance(item, Unobserved)
    pods = tuple(replace(p, ready=p.ordinal != 2) for p in item.pods)
    return case.with_status(operation=operation).observing(stateful_sets=(replace(item, pods=pods),))


HINDRANCES: dict[str, tuple[Callable[[Situation], Situation], str]] = {
    "paused": (lambda case: case.asking(paused=True), "spec.paused is true"),
    "clock unknown": (lambda case: case.observing(server_time=Unobserved("clock", "no answer")), ""),
    "claim lost": (_lost_claim, "that of controller 3002 is gone"),
    "claims not read": (
        lambda case: case.observing(controllers=replace(workload_of(case), claims=None)),
        "the claims of their volumes were not read",
    ),
    "blank volumes allowed": (
        lambda case: case.observing(controllers=replace(workload_of(case), format_allowed=True)),
        "blank volume to be formatted",
    ),
    "edited Secret": (lambda case: _with_secret(case, problem="tls.crt has no SAN"), "tls.crt has no SAN"),
    "Secret ended": (lambda case: _with_secret(case, expires_at=NOW - timedelta(seconds=1)), "is not valid now either"),
    "Secret not yet valid": (lambda case: _with_secret(case, begins_at=NOW + timedelta(days=200)), "is not valid now either"),
    "Secret unknown": (
        lambda case: case.observing(issued=Unobserved("Secret", "timeout")),
        "the certificate in their Secret is not known",
    ),
    "another authority": (_with_key, "another authority than the recorded one"),
    "a broker restarts": (_broker_restarts, "broker 2 restarts"),
    "a voter unread": (
        lambda case: case.observing(
            presented={n: c for n, c in case.observation.presented.items() if n != 3001}  # type: ignore[union-attr]
        ),
        "certificate of controller 3001",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fine", [open_gate(Phase.DUAL_WRITE), open_gate(Phase.AWAITING_FINALIZATION), COMPLETED], ids=["DualWrite", "AwaitingFinalization", "Completed"])  # fmt: skip
@pytest.mark.parametrize("hindrance", HINDRANCES)
def test_what_is_unknown_or_wrong_restarts_nothing(fine: Situation, hindrance: str) -> None:
    change, words = HINDRANCES[hindrance]
    case = change(ended(fine))
    decisions = []
    for _ in range(30):
        decision = case.decide()
        decisions.append(decision)
        case = case.after(decision).later(60)
        if not isinstance(case.observation.server_time, Unobserved):
            case = case.observing(server_time=case.now)
        if hindrance == "a broker restarts":
            case = _broker_restarts(case)
    assert not set(restarts_of(decisions)) & set(VOTERS)
    assert words in decisions[-1].status.message
    assert known(decisions[-1], ConditionType.STALLED).status == "True"


@pytest.mark.parametrize("phase", [Phase.TAKING_OVER, Phase.FINALIZING])
def test_never_between_claim_and_dual_write_nor_in_finalizing(phase: Phase) -> None:
    case = ended(open_gate(phase))
    zookeeper = case.observation.zookeeper
    assert not isinstance(zookeeper, Unobserved)
    if phase is Phase.TAKING_OVER:
        copying = replace(zookeeper, migration=MigrationZnode(3000, 2, -1, 2))
        case = case.with_status(migration_offset=None).observing(zookeeper=copying)
    _, decisions = walked(case, 60, 60)
    assert not set(restarts_of(decisions)) & set(VOTERS)
    assert known(decisions[-1], ConditionType.STALLED).status == "True"
    expected = "copies the metadata" if phase is Phase.TAKING_OVER else "ends the migration"
    assert expected in decisions[-1].status.message


def test_a_rollback_whose_controllers_still_mirror_goes_on_with_renewed_certificates() -> None:
    fine = open_gate(Phase.DUAL_WRITE)
    back = ended(fine).asking(Target.ZOOKEEPER).with_status(phase=Phase.ROLLING_BACK)
    assert restarts_of(walked(back, 2, 1)[1]) == [3000, 3001, 3002]
    zookeeper = fine.observation.zookeeper
    assert not isinstance(zookeeper, Unobserved)
    copying = back.observing(zookeeper=replace(zookeeper, migration=MigrationZnode(3000, 2, -1, 2)))
    assert not set(restarts_of(walked(copying, 30)[1])) & set(VOTERS)


@pytest.mark.parametrize("fine", SAFE, ids=[s.status.phase for s in SAFE])
def test_certificates_of_the_user_need_a_word(fine: Situation) -> None:
    case = ended(fine, generate=False, secret_name="listener")
    brought = IssuedSecret("listener", exists=True, begins_at=NOW - timedelta(days=1), expires_at=NOW + timedelta(days=90), fingerprint=NEW)  # fmt: skip
    case = case.observing(issued=None, brought=brought)
    _, decisions = walked(case, 20)
    assert not set(restarts_of(decisions)) & set(VOTERS)
    assert f"spec.restartExpiredControllers: {NEW}" in decisions[-1].status.message
    assert not set(restarts_of(walked(case.asking(restart_expired_controllers=OLD), 20)[1])) & set(VOTERS)
    assert set(restarts_of(walked(case.asking(restart_expired_controllers=NEW), 2, 1)[1])) == set(VOTERS)


def test_one_voter_that_has_the_renewed_one_stays() -> None:
    """It restarted by itself, and waits for the others."""
    case = running_with(issuing(COMPLETED), NOW - timedelta(minutes=1), (3000, 3002)).observing(quorum=TLS)
    assert restarts_of(walked(case, 2, 1)[1]) == [3000, 3002]


@pytest.mark.parametrize("fine", SAFE, ids=[s.status.phase for s in SAFE])
def test_a_roll_under_way_does_not_go_on_one_at_a_time(fine: Situation) -> None:
    """The old connections still carry a quorum, which each restart would take a voter from."""
    case = running_with(issuing(fine), NOW - timedelta(minutes=1), (3000, 3002))
    held = replace(workload_of(case), claims=None)
    assert not set(restarts_of(walked(case.observing(controllers=held), 20, 1)[1])) & set(VOTERS)


def test_a_change_of_the_spec_that_is_half_way_is_not_tried_by_all_voters_at_once() -> None:
    case = ended(open_gate(Phase.DUAL_WRITE))
    status = case.status.controllers
    assert status is not None
    assert status.rendered is not None
    changing = case.observing(
        quorum=open_gate(Phase.DUAL_WRITE).observation.quorum, server_time=NOW - timedelta(days=1)
    )
    wanted = changing.spec.controllers.model_copy(update={"heap_options": "-Xmx1g"})
    changing = changing.asking(controllers=wanted)
    begun = changing.decide()
    assert begun.status.controllers is not None
    assert begun.status.controllers.change is not None
    case = changing.after(begun).observing(quorum=TLS, server_time=NOW).later(1)
    recorded = case.decide()
    given_up = case.after(recorded).later(1).decide()
    assert restarted(given_up) == []
    assert given_up.status.controllers is not None
    assert given_up.status.controllers.rendered == status.rendered
    assert any(isinstance(a, ApplyControllers) for a in given_up.actions)
    assert restarted(case.after(given_up).later(2).decide()) == [3000, 3001, 3002]


@pytest.mark.parametrize("phase", [Phase.PROVISIONING_QUORUM, Phase.DUAL_WRITE])
def test_a_voter_that_had_the_change_which_was_taken_back_gets_the_former_configuration_too(phase: Phase) -> None:
    """It restarted by itself meanwhile, so its certificate had not ended. Up to 991e67ed the phase waited for it for ever."""
    fine = open_gate(phase)
    restart = QuorumRestart(attempt=1, certificate=NEW, pods={"3000": "a", "3002": "b"}, began_at=NOW, restarted_at=NOW)
    case = running_with(issuing(fine), NOW + timedelta(days=900), ()).with_status(quorum_restart=restart)
    stateful_set = set_of(case)
    pods = tuple(replace(p, configuration="Migration-changed", revision="changed") if p.ordinal == 3001 else p for p in stateful_set.pods)  # fmt: skip
    workload = replace(workload_of(case), stateful_set=replace(stateful_set, pods=pods))
    _, decisions = walked(case.observing(controllers=workload), 12, 2)
    assert decisions[0].status.quorum_restart is not None
    assert decisions[0].status.quorum_restart.finished_at is not None
    assert set(restarts_of(decisions)) & set(VOTERS) == {3001}


@pytest.mark.parametrize("phase", [Phase.DUAL_WRITE, Phase.ROLLING_BROKERS, Phase.AWAITING_FINALIZATION, Phase.FINALIZING, Phase.COMPLETED])  # fmt: skip
def test_open_connections_still_carry_the_quorum_and_nobody_restarts_beside_it(phase: Phase) -> None:
    """Neither a broker nor a controller, and the rest is not Ready."""
    fine = open_gate(phase) if phase is not Phase.ROLLING_BROKERS else rolling(phase, 1)
    assert fine.decide().status.phase is not fine.status.phase or restarted(fine.decide()) or phase is Phase.COMPLETED
    case = running_with(issuing(fine), NOW - timedelta(minutes=1)).observing(issued=Unobserved("Secret", "timeout"))
    _, decisions = walked(case, 20, 5)
    assert restarts_of(decisions) == []
    assert {d.status.phase for d in decisions} == {phase}
    assert known(decisions[-1], ConditionType.READY).status == "False"


def test_an_operator_is_not_removed_meanwhile() -> None:
    case = ended(COMPLETED)
    status = case.decide().status
    assert expired.is_under_way(status)
    assert machine.release_blocker(status)
    assert rolling(Phase.ROLLING_BROKERS, 1).decide().status.quorum_restart is None
