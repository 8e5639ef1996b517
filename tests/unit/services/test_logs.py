"""Logs are read when a phase is slow, of the nodes that may say why, and what they say reaches the status."""

from __future__ import annotations

from tests.unit.services.conftest import Operator

from kraftbridge.exceptions import ObservationError
from kraftbridge.models.conditions import ConditionType, condition
from kraftbridge.models.phase import Phase


def read(operator: Operator) -> list[str]:
    """Return the pods whose logs were read; that of a rehearsal is not one of them, since its result is in its log."""
    return [name for verb, _, name in operator.kubernetes.calls if verb == "pod_logs" and "-rehearsal-" not in name]


def held_up(operator: Operator) -> None:
    """Walk into TakingOver and let it wait for a partition's ISR."""
    operator.walk(Phase.TAKING_OVER)
    operator.kafka.under_replicated = ("topic-0",)
    operator.rest(6)


def test_a_migration_that_moves_reads_no_log(operator: Operator) -> None:
    operator.walk(Phase.COMPLETED)
    assert read(operator) == []


def test_past_the_deadline_stalled_says_what_the_logs_say(operator: Operator) -> None:
    held_up(operator)
    line, name = "INFO Still waiting for ZK brokers [2] to register with KRaft.", operator.controllers()
    operator.kubernetes.logs = {f"{name}-3001": line, f"{name}-3000": "INFO nothing of interest"}
    assert read(operator) == []
    operator.clock.advance(3600)
    operator.rest(2)
    assert {f"{name}-{i}" for i in (3000, 3001, 3002)} <= set(read(operator))
    assert len(read(operator)) == len(set(read(operator))), "each log once in a while"
    stalled = condition(operator.status().conditions, ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", "DeadlineExceeded")
    assert "topic-0" in stalled.message
    assert "controller 3001: it waits for ZK brokers [2] to register with KRaft" in stalled.message
    operator.kafka.under_replicated = ()
    operator.walk(Phase.DUAL_WRITE)


def test_logs_that_may_not_be_read_change_nothing(operator: Operator) -> None:
    held_up(operator)

    def deny(verb: str, _kind: str, _name: str) -> None:
        if verb == "pod_logs":
            raise ObservationError("log", "403")

    operator.kubernetes.before_call = deny
    operator.clock.advance(3600)
    operator.rest(2)
    assert "Logs:" not in operator.status().message
    assert "topic-0" in operator.status().message
