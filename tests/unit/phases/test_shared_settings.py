"""The settings that the controllers share with the brokers: when they are read, what counts as a change, what a finding stops."""

from __future__ import annotations

import pytest
from tests.support.observations import (
    BROKER_IDS,
    NOW,
    RUNNING,
    Situation,
    dry_start_of,
    open_gate,
    rolling,
    setting,
    survey,
)

from kraftbridge.models.conditions import ConditionType, Reason, condition
from kraftbridge.models.decision import RestartPod
from kraftbridge.models.observation import NOT_NEEDED, Unobserved
from kraftbridge.models.phase import Part, Phase, Target
from kraftbridge.models.status import (
    ControllersStatus,
    Operation,
    OperationKind,
    RenderedControllers,
    tuned_controllers,
)
from kraftbridge.models.survey import BrokerSetting, SettingSource, Survey
from kraftbridge.phases.needs import needs
from kraftbridge.phases.shared_settings import FOLLOWED

WITH_CONTROLLERS = sorted(FOLLOWED - {Phase.UPGRADING_BROKERS})
STEPS = [
    (Phase.PROVISIONING_QUORUM, Phase.TAKING_OVER),
    (Phase.DUAL_WRITE, Phase.ROLLING_BROKERS),
    (Phase.AWAITING_FINALIZATION, Phase.FINALIZING),
]
MAP = setting("listener.security.protocol.map", "INTERNAL:PLAINTEXT")
PLUGIN = setting("create.topic.policy.class.name", "com.example.Policy")


def rendered(situation: Situation) -> Situation:
    """Return the same with formatted voters whose configuration has the recorded settings."""
    known = situation.status.controllers
    assert known is not None
    settings = situation.status.broker_settings
    of = RenderedControllers.of(tuned_controllers(situation.spec, situation.status), broker_settings=settings)
    return situation.with_status(controllers=known.model_copy(update={"rendered": of}))


def telling(situation: Situation, *more: BrokerSetting) -> Situation:
    """Return the same with brokers that run with these settings besides."""
    return situation.observing(survey=survey(brokers=dict.fromkeys(BROKER_IDS, (*RUNNING, *more))))


def controllers_of(situation: Situation) -> ControllersStatus:
    found = situation.decide().status.controllers
    assert found is not None
    return found


def stalled(situation: Situation) -> str:
    found = condition(situation.decide().status.conditions, ConditionType.STALLED)
    return found.message if found is not None and found.status == "True" and found.reason is Reason.FINDINGS else ""


@pytest.mark.parametrize("phase", [phase for phase, _ in STEPS])
def test_settings_that_are_to_be_read_are_not_called_unneeded(phase: Phase) -> None:
    message = rendered(open_gate(phase)).observing(survey=NOT_NEEDED).decide().status.message
    assert "the settings of the brokers are read anew" in message
    assert "not needed" not in message


@pytest.mark.parametrize(("phase", "following"), STEPS)
def test_the_same_settings_open_the_gate(phase: Phase, following: Phase) -> None:
    decision = rendered(open_gate(phase)).decide()
    assert decision.status.phase is following


@pytest.mark.parametrize(("phase", "_following"), STEPS)
@pytest.mark.parametrize(
    "unknown",
    [
        Unobserved("survey", "not yet"),
        survey(brokers=Unobserved("Kafka", "silent")),
        survey(brokers={0: RUNNING, 1: RUNNING}),
        survey(brokers={0: RUNNING, 1: RUNNING, 2: Unobserved("broker 2", "silent")}),
    ],
)
def test_settings_that_are_not_known_keep_the_gate_closed(phase: Phase, _following: Phase, unknown: object) -> None:
    decision = rendered(open_gate(phase)).observing(survey=unknown).decide()
    assert decision.status.phase is phase


@pytest.mark.parametrize("phase", WITH_CONTROLLERS)
def test_the_controllers_follow_a_changed_setting(phase: Phase) -> None:
    situation = telling(rendered(open_gate(phase)), setting("min.insync.replicas", "2"))
    decision = situation.decide()
    assert decision.status.phase is (Phase.DUAL_WRITE if phase is Phase.TAKING_OVER else phase)
    assert decision.status.broker_settings["min.insync.replicas"] == "2"
    change = controllers_of(situation).change
    if phase is Phase.TAKING_OVER:
        assert change is None, "KRaft has claimed the cluster and copies: the change waits for dual-write"
        return
    assert change is not None
    assert change.to.broker_settings == decision.status.broker_settings
    assert any("min.insync.replicas was unset and is 2" in e.message for e in decision.events)


@pytest.mark.parametrize("phase", WITH_CONTROLLERS)
@pytest.mark.parametrize(
    "told",
    [
        setting("min.insync.replicas", "2", SettingSource.DYNAMIC_DEFAULT),
        setting("num.io.threads", "16"),
        setting("zookeeper.set.acl", None, sensitive=False),
    ],
)
def test_what_the_controllers_do_not_share_restarts_nothing(phase: Phase, told: BrokerSetting) -> None:
    situation = telling(rendered(open_gate(phase)), told)
    assert situation.decide().status.broker_settings == situation.status.broker_settings
    assert controllers_of(situation).change is None


@pytest.mark.parametrize("phase", [Phase.DUAL_WRITE, Phase.AWAITING_FINALIZATION])
def test_what_the_migration_has_set_on_a_broker_is_no_change(phase: Phase) -> None:
    ours = (
        setting("broker.id", "0"),
        setting("listener.security.protocol.map", "CONTROLLER:SSL,INTERNAL:PLAINTEXT"),
        setting("controller.quorum.voters", "3000@controller:9093"),
        setting("zookeeper.metadata.migration.enable", "true"),
        setting("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        setting("num.partitions", "3"),
    )
    situation = rendered(open_gate(phase))
    brokers = situation.spec.brokers.model_copy(update={"static_settings": {"num.partitions": "3"}})
    situation = situation.asking(brokers=brokers).observing(survey=survey(brokers=dict.fromkeys(BROKER_IDS, ours)))
    decision = situation.decide()
    assert decision.status.broker_settings == situation.status.broker_settings
    assert controllers_of(situation).change is None
    assert stalled(situation) == ""


def test_what_an_earlier_release_rendered_is_recorded_and_restarts_nothing() -> None:
    situation = rendered(open_gate(Phase.DUAL_WRITE))
    known = situation.status.controllers
    assert known is not None
    assert known.rendered is not None
    old = known.rendered.model_copy(update={"broker_settings": None})
    upgraded = situation.with_status(controllers=known.model_copy(update={"rendered": old}))
    first = telling(upgraded, setting("min.insync.replicas", "2"))
    decision = first.step()
    after = decision.status.controllers
    assert after is not None
    assert after.change is None
    assert after.rendered is not None
    assert after.rendered.broker_settings == situation.status.broker_settings
    second = first.after(decision).step().status.controllers
    assert second is not None
    assert second.change is not None


@pytest.mark.parametrize(("phase", "_following"), STEPS)
def test_a_finding_stops_the_next_phase_and_leaves_the_controllers_as_they_are(phase: Phase, _following: Phase) -> None:
    situation = telling(rendered(open_gate(phase)), PLUGIN, setting("min.insync.replicas", "2"))
    decision = situation.decide()
    assert decision.status.phase is phase
    assert "PluginNotOnControllers" in stalled(situation)
    assert "min.insync.replicas was unset and is 2" in stalled(situation)
    assert decision.status.broker_settings == situation.status.broker_settings
    assert controllers_of(situation).change is None


def test_what_a_dry_start_shows_in_the_step_of_the_gate_is_taken_before_the_takeover() -> None:
    """The proof of the channel is recorded after the settings were looked at; the simulation found a takeover without them."""
    situation = telling(rendered(open_gate(Phase.PROVISIONING_QUORUM)), setting("min.insync.replicas", "2"))
    known = situation.status.channel
    assert known is not None
    survey_now = situation.observation.survey
    assert isinstance(survey_now, Survey)
    assert not isinstance(survey_now.brokers, Unobserved)
    outdated = situation.with_status(channel=known.model_copy(update={"fingerprint": "another"}))
    outdated = outdated.observing(dry_start=dry_start_of(brokers=survey_now.brokers))
    decision = outdated.decide()
    assert decision.status.phase is Phase.PROVISIONING_QUORUM
    assert outdated.after(decision).decide().status.broker_settings["min.insync.replicas"] == "2"


@pytest.mark.parametrize("phase", sorted(FOLLOWED))
def test_a_finding_stops_no_rollback(phase: Phase) -> None:
    resting = open_gate(phase, Target.ZOOKEEPER)
    situation = telling(rendered(resting) if phase in WITH_CONTROLLERS else resting, PLUGIN)
    assert situation.decide().status.phase is Phase.ROLLING_BACK


def restarted(situation: Situation) -> list[int]:
    return [a.node_id for a in situation.decide().actions if isinstance(a, RestartPod)]


@pytest.mark.parametrize(
    ("situation", "refused", "stops"),
    [
        (rolling(Phase.TAKING_OVER, 0), PLUGIN, True),
        (rolling(Phase.TAKING_OVER, 1), PLUGIN, True),
        (rolling(Phase.ROLLING_BROKERS, 0), PLUGIN, True),
        (rolling(Phase.ROLLING_BROKERS, 1), PLUGIN, False),
        (rolling(Phase.ROLLING_BROKERS, 1), setting("control.plane.listener.name", "INTERNAL"), True),
    ],
    ids=["first of TakingOver", "second", "first of RollingBrokers", "half a roll", "of that broker itself"],
)
def test_a_finding_stops_the_next_restart_but_strands_no_roll(
    situation: Situation,
    refused: BrokerSetting,
    stops: bool,
) -> None:
    fine = telling(rendered(situation))
    before = fine.decide()
    assert stalled(fine) == ""
    assert bool(stalled(telling(fine, refused))) is stops
    if stops:
        assert restarted(telling(fine, refused)) == []
        assert "brokers have restarted" in stalled(telling(fine, refused))
    else:
        assert telling(fine, refused).decide().actions == before.actions


def test_the_settings_are_read_where_a_forward_step_comes_next() -> None:
    asked = {phase: Part.SURVEY in needs(open_gate(phase).status, NOW) for phase in Phase if phase not in _BACK}
    ready = open_gate(Phase.PROVISIONING_QUORUM).decide().status.model_copy(update={"phase": Phase.PROVISIONING_QUORUM})
    assert Part.SURVEY in needs(ready, NOW)
    assert not asked.pop(Phase.PROVISIONING_QUORUM), "the quorum is not ready yet"
    assert {phase for phase, is_asked in asked.items() if is_asked} == {Phase.PREFLIGHT, *FOLLOWED} - {
        Phase.PROVISIONING_QUORUM
    }


_BACK = (Phase.ROLLING_BACK, Phase.ROLLED_BACK, Phase.LEAVING_KAFKA4)


@pytest.mark.parametrize(
    ("phase", "target"),
    [
        (Phase.PROVISIONING_QUORUM, Target.QUORUM_READY),
        (Phase.DUAL_WRITE, Target.DUAL_WRITE),
        (Phase.AWAITING_FINALIZATION, Target.KRAFT_BROKERS),
    ],
)
def test_nobody_is_asked_at_rest_or_while_a_node_is_away(phase: Phase, target: Target) -> None:
    status = open_gate(phase).decide().status.model_copy(update={"phase": phase, "target": target})
    assert Part.SURVEY not in needs(status, NOW)
    roll = rolling(Phase.ROLLING_BROKERS, 1).status
    assert Part.SURVEY in needs(roll, NOW)
    operation = Operation(kind=OperationKind.RESTART_BROKER, node_id=1, pod="kafka-1", pod_uid="uid-1", started_at=NOW)
    assert Part.SURVEY not in needs(roll.model_copy(update={"operation": operation}), NOW)
