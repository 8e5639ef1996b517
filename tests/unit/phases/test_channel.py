"""``configStyle: Auto``: a dry start chooses the channel, preflight records it, and no later phase chooses again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.support.observations import NOW, Situation, broker_set, dry_start_of, open_gate, pod

from kraftbridge.copies.dry_start import described
from kraftbridge.models.conditions import ConditionType, Reason, condition
from kraftbridge.models.decision import Decision, LaunchRun
from kraftbridge.models.dry_start import CopyOutcome, DryStartReport, DryStartState
from kraftbridge.models.observation import StatefulSetState, Unobserved
from kraftbridge.models.phase import BrokerMode, Phase, Target
from kraftbridge.models.runs import RunKind
from kraftbridge.models.spec import (
    AcceptedFinding,
    BrokersSpec,
    ConfigStyle,
    PreflightSpec,
    PropertiesSource,
    StatefulSetRef,
)
from kraftbridge.models.status import ChannelStatus, DryStartRunStatus, FindingStatus, with_channel

BROKERS = open_gate(Phase.PREFLIGHT).spec.brokers


def auto(**changes: Any) -> BrokersSpec:
    return BROKERS.model_copy(update={"config_style": ConfigStyle.AUTO, **changes})


ENV = BROKERS.model_copy(update={"config_style": ConfigStyle.ENV})
CFG = BROKERS.model_copy(update={"config_style": ConfigStyle.ENV, "env_prefix": "KAFKA_CFG_"})
FILE = BROKERS.model_copy(
    update={"config_style": ConfigStyle.PROPERTIES, "properties": PropertiesSource(volume="config", key="broker.conf")}
)
CHANNELS = (ENV, CFG, FILE)
TAKEN = ChannelStatus.of(ENV)
PROVEN = TAKEN.model_copy(update={"proven_at": NOW, "proven_by": "copies", "fingerprint": "same"})


def report(
    reaching: Mapping[str, BrokersSpec | None], present: BrokersSpec = ENV, sets: Sequence[StatefulSetState] = ()
) -> DryStartReport:
    """Return the dry start of a channel, and of the others if it is lost, where each StatefulSet is reached by the channel that is given."""
    whole = dry_start_of(sets).report
    assert whole is not None

    def outcome(copy: CopyOutcome, channel: BrokersSpec) -> CopyOutcome:
        if copy.key.mode is BrokerMode.ZOOKEEPER or reaching[copy.key.stateful_set] == channel:
            return copy
        assert copy.start is not None
        settings = {n: v for n, v in copy.start.settings.items() if n not in copy.overlay}
        return replace(copy, start=replace(copy.start, settings=settings))

    copies = tuple(outcome(c, present) for c in whole.copies)
    trials = tuple(
        replace(outcome(c, channel), key=replace(c.key, channel=described(channel)))
        for channel in CHANNELS
        if channel != present
        for c in whole.copies
        if c.key.mode is not BrokerMode.ZOOKEEPER
    )
    return DryStartReport("same", copies, trials if copies != whole.copies else ())


def state(found: DryStartReport | None, **changes: Any) -> DryStartState:
    return replace(DryStartState("same", report=found, channels=CHANNELS), **changes)


def preflight(
    dry_start: DryStartState | Unobserved, channel: ChannelStatus | None = TAKEN, **changes: Any
) -> Situation:
    case = open_gate(Phase.PREFLIGHT).asking(brokers=auto(**changes)).observing(dry_start=dry_start)
    return case.with_status(channel=channel)


def launched(decision: Decision) -> DryStartRunStatus:
    """Return the dry start that the decision launches."""
    assert decision.status.dry_start is not None
    run = decision.status.dry_start.running
    assert run is not None
    assert LaunchRun(RunKind.DRY_START, run.run_id) in decision.actions
    return run


def unknown(case: Situation) -> FindingStatus:
    (found,) = [f for f in case.decide().status.findings if f.code == "ChannelUnknown"]
    return found


def test_the_likely_channel_is_tried_first_and_nothing_is_found_with_it() -> None:
    decision = preflight(state(None), channel=None).decide()
    assert decision.status.channel == TAKEN
    assert decision.status.findings == ()
    assert not decision.actions
    decision = preflight(state(None)).decide()
    assert launched(decision).choosing
    assert decision.status.findings == (), "what they say of the templates depends on the channel"
    assert "Copies of the brokers' pods" in decision.status.message


def test_the_channel_that_copies_prove_is_recorded_and_opens_the_gate() -> None:
    status = preflight(state(report({"kafka": ENV}))).decide().status
    assert status.phase is Phase.PROVISIONING_QUORUM
    assert status.channel is not None
    assert (str(status.channel), status.channel.fingerprint) == ("configStyle: Env, envPrefix: KAFKA_", "same")
    assert status.channel.proven_at == NOW
    assert status.channel.proven_by == "copies of kafka-0, kafka-2 in Migration and KRaft mode"


@pytest.mark.parametrize("reaching", [CFG, FILE])
def test_where_the_guess_is_lost_the_channel_that_reaches_is_taken_and_judged_by_a_dry_start_of_its_own(
    reaching: BrokersSpec,
) -> None:
    decision = preflight(state(report({"kafka": reaching}))).decide()
    assert decision.status.phase is Phase.PREFLIGHT
    assert decision.status.channel == ChannelStatus.of(reaching)
    assert not decision.actions, "the fingerprint of this step is that of the former channel"
    case = preflight(state(report({"kafka": reaching}, present=reaching)), decision.status.channel)
    mounted = replace(broker_set(), properties_from="ConfigMap/own" if reaching.file else "")
    case = case.observing(stateful_sets=(mounted,))
    status = case.decide().status
    assert status.phase is Phase.PROVISIONING_QUORUM
    assert status.channel is not None
    assert str(status.channel) == described(reaching)
    assert with_channel(case.spec, status).brokers.config_style is reaching.config_style


def test_a_channel_that_reaches_in_one_mode_only_is_not_taken() -> None:
    found = report({"kafka": CFG})
    spoiled = tuple(
        replace(t, start=None, problem="container kafka ended with code 1", words="KAFKA_X must be set")
        if t.key.mode is BrokerMode.KRAFT and t.key.channel == described(CFG)
        else t
        for t in found.trials
    )
    case = preflight(state(replace(found, trials=spoiled)))
    decision = case.decide()
    assert decision.status.channel == TAKEN
    assert decision.status.phase is Phase.PREFLIGHT
    reason = unknown(case).reason
    for channel in CHANNELS:
        assert described(channel) in reason
    assert 'the image says: "KAFKA_X must be set"' in reason


def test_a_channel_that_reaches_the_first_pod_and_not_the_last_is_not_taken() -> None:
    found = report({"kafka": CFG})
    last = tuple(t for t in found.trials if not (t.key.ordinal == 2 and t.key.channel == described(CFG)))
    case = preflight(state(replace(found, trials=last)))
    assert case.decide().status.channel == TAKEN
    assert "pod kafka-2 in Migration mode: no copy was made" in unknown(case).reason


SETS = tuple(
    replace(broker_set(BrokerMode.ZOOKEEPER, [pod(f"{name}-0", 0)]), name=name, uid=f"uid-{name}", replicas=1)
    for name in ("kafka-a", "kafka-b")
)


def of_sets(reaching: Mapping[str, BrokersSpec | None], present: BrokersSpec = ENV) -> Situation:
    refs = tuple(StatefulSetRef(name=s.name) for s in SETS)
    return preflight(state(report(reaching, present, SETS)), stateful_sets=refs).observing(stateful_sets=SETS)


def test_of_several_statefulsets_the_channel_that_reaches_all_is_taken() -> None:
    decision = of_sets({"kafka-a": CFG, "kafka-b": CFG}).decide()
    assert decision.status.channel == ChannelStatus.of(CFG)


def test_statefulsets_with_channels_of_their_own_are_refused_with_this_reason() -> None:
    case = of_sets({"kafka-a": ENV, "kafka-b": CFG})
    assert case.decide().status.channel == TAKEN
    reason = unknown(case).reason
    assert "no one channel reaches every StatefulSet" in reason
    assert (
        f"{described(ENV)} (it reaches StatefulSet kafka-a, and not kafka-b: pod kafka-b-0 in Migration mode" in reason
    )
    assert f"{described(CFG)} (it reaches StatefulSet kafka-b, and not kafka-a" in reason


@pytest.mark.parametrize(
    ("dry_start", "words"),
    [
        (DryStartState("", off=True), "dryStart.enabled=false"),
        (Unobserved("StatefulSet kafka", "403"), "403"),
        (state(DryStartReport("same", problem="the probe pod did not run")), "the probe pod did not run"),
        (state(DryStartReport("same", reached=("10.0.0.1:2181",))), "no copy of a broker's pod was started"),
        (state(report({"kafka": None})), "tried were configStyle: Env, envPrefix: KAFKA_"),
    ],
)
def test_without_a_proof_the_gate_stays_closed_whatever_is_accepted(
    dry_start: DryStartState | Unobserved, words: str
) -> None:
    case = preflight(dry_start)
    codes = {f.code for f in case.decide().status.findings}
    accepted = tuple(AcceptedFinding(code=c) for c in codes)
    case = case.asking(preflight=PreflightSpec(accepted=accepted))
    decision = case.decide()
    assert decision.status.phase is Phase.PREFLIGHT
    found = unknown(case)
    assert words in found.reason
    assert not found.accepted
    assert "Env" in found.fix
    assert "Properties" in found.fix
    assert decision.status.channel == TAKEN


def test_a_proof_of_a_former_template_is_none() -> None:
    decision = preflight(state(report({"kafka": ENV}), fingerprint="another"), PROVEN).decide()
    assert decision.status.phase is Phase.PREFLIGHT
    assert launched(decision).digest == "another"


def test_in_preflight_a_changed_template_may_have_another_channel() -> None:
    decision = preflight(state(report({"kafka": CFG})), PROVEN).decide()
    assert decision.status.channel == ChannelStatus.of(CFG)


def test_a_channel_that_the_user_names_is_recorded_with_its_proof_and_never_replaced() -> None:
    case = open_gate(Phase.PREFLIGHT).asking(brokers=CFG).observing(dry_start=state(report({"kafka": ENV}, CFG)))
    decision = case.with_status(channel=PROVEN).decide()
    assert decision.status.phase is Phase.PREFLIGHT
    assert {f.code for f in decision.status.findings} == {"DryStartOverlayLost"}
    case = case.observing(dry_start=state(report({"kafka": CFG}, CFG)))
    known = case.with_status(channel=PROVEN).decide().status.channel
    assert known is not None
    assert str(known) == described(CFG)
    assert known.proven_at == NOW
    known = case.observing(dry_start=DryStartState("", off=True)).decide().status.channel
    assert known == ChannelStatus.of(CFG), "no dry start proved it"


# ---------------------------------------------------------------------------------- after preflight


def provisioned(dry_start: DryStartState | Unobserved, brokers: BrokersSpec | None = None) -> Situation:
    case = open_gate(Phase.PROVISIONING_QUORUM).asking(brokers=brokers or auto())
    return case.with_status(channel=PROVEN).observing(dry_start=dry_start)


def test_as_long_as_the_templates_are_those_of_preflight_no_dry_start_is_repeated() -> None:
    decision = provisioned(state(None)).decide()
    assert decision.status.phase is Phase.TAKING_OVER
    assert not [a for a in decision.actions if isinstance(a, LaunchRun)]


@pytest.mark.parametrize("brokers", [auto(), ENV])
def test_a_changed_template_is_judged_before_any_broker_restarts_and_the_channel_stays(brokers: BrokersSpec) -> None:
    decision = provisioned(state(None, fingerprint="other"), brokers).decide()
    run = launched(decision)
    assert (run.digest, run.choosing) == ("other", False)
    assert decision.status.phase is Phase.PROVISIONING_QUORUM
    assert "changed since preflight" in decision.status.message

    lost = state(replace(report({"kafka": CFG}), fingerprint="other"), fingerprint="other")
    decision = provisioned(lost, brokers).decide()
    assert decision.status.phase is Phase.PROVISIONING_QUORUM
    assert decision.status.channel == PROVEN
    stalled = condition(decision.status.conditions, ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", Reason.FINDINGS)
    assert "The channel cannot change now (configStyle: Env, envPrefix: KAFKA_)" in decision.status.message

    sound = state(replace(report({"kafka": ENV}), fingerprint="other"), fingerprint="other")
    status = provisioned(sound, brokers).decide().status
    assert status.phase is Phase.TAKING_OVER
    assert status.channel is not None
    assert status.channel.fingerprint == "other"


@pytest.mark.parametrize("dry_start", [DryStartState("", off=True), Unobserved("StatefulSet kafka", "403")])
def test_what_is_not_known_before_the_first_restart_closes_the_gate(dry_start: DryStartState | Unobserved) -> None:
    decision = provisioned(dry_start).decide()
    assert decision.status.phase is Phase.PROVISIONING_QUORUM
    assert condition(decision.status.conditions, ConditionType.STALLED).status == "True"  # type: ignore[union-attr]


def test_a_migration_of_an_earlier_release_has_no_channel_and_goes_on_with_what_spec_says() -> None:
    case = open_gate(Phase.PROVISIONING_QUORUM).asking(brokers=ENV).with_status(channel=None)
    assert case.observing(dry_start=state(None, fingerprint="other")).decide().status.phase is Phase.TAKING_OVER


LATER = [p for p in Phase if p not in (Phase.PREFLIGHT, Phase.ROLLED_BACK, Phase.ROLLING_BACK)]


@pytest.mark.parametrize("phase", LATER)
def test_without_the_recorded_channel_nothing_is_done(phase: Phase) -> None:
    decision = open_gate(phase).asking(brokers=auto()).with_status(channel=None).decide()
    assert decision.actions == ()
    assert decision.status.phase is phase
    assert "status.channel" in decision.status.message


@pytest.mark.parametrize("phase", LATER)
def test_no_later_phase_chooses_another_channel(phase: Phase) -> None:
    case = open_gate(phase).asking(brokers=auto()).with_status(channel=PROVEN)
    lost = state(report({"kafka": CFG}))
    for each in (case, case.observing(dry_start=lost), case.asking(target=Target.ZOOKEEPER)):
        assert each.decide().status.channel == PROVEN


def test_the_recorded_channel_stands_for_auto_and_an_explicit_one_for_itself() -> None:
    spec = open_gate(Phase.DUAL_WRITE).spec
    for known in CHANNELS:
        status = open_gate(Phase.DUAL_WRITE).status.model_copy(update={"channel": ChannelStatus.of(known)})
        resolved = with_channel(spec.model_copy(update={"brokers": auto()}), status).brokers
        assert described(resolved) == described(known)
        for stated in CHANNELS:
            assert with_channel(spec.model_copy(update={"brokers": stated}), status).brokers == stated
    stated = PropertiesSource(volume="config", key="broker.conf", config_map="own")
    status = open_gate(Phase.DUAL_WRITE).status.model_copy(update={"channel": ChannelStatus.of(FILE)})
    assert (
        with_channel(spec.model_copy(update={"brokers": auto(properties=stated)}), status).brokers.properties == stated
    )
    with pytest.raises(ValueError, match="Auto stands for no channel"):
        _ = auto().file
