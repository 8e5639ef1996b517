"""Logs are read when a phase is slow, of the nodes that may say why, and what they say reaches the status."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from unittest.mock import Mock

import pytest
from tests.support.observations import broker_set, open_gate
from tests.unit.services.conftest import Operator

from kraftbridge.exceptions import ObservationError
from kraftbridge.models.conditions import ConditionType, condition
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.phase import Phase
from kraftbridge.models.status import WatchedStart
from kraftbridge.phases.draft import Migration
from kraftbridge.services.observe.workloads import OF_KAFKA, LogReader

STARTING = "INFO starting (kafka.server.KafkaServer)"


def read(operator: Operator) -> list[str]:
    """Return the pods whose logs were read; that of a rehearsal is not one of them, since its result is in its log."""
    return [name for verb, _, name in operator.kubernetes.calls if verb == "pod_logs" and "-rehearsal-" not in name]


def held_up(operator: Operator) -> None:
    """Walk into TakingOver and let it wait for a partition's ISR."""
    operator.walk(Phase.TAKING_OVER)
    operator.kafka.under_replicated = ("topic-0",)
    operator.rest(6)


def test_a_migration_that_moves_reads_the_starts_of_restarted_brokers_alone(operator: Operator) -> None:
    operator.walk(Phase.COMPLETED)
    assert set(read(operator)) <= {"kafka-0", "kafka-1", "kafka-2"}


def test_a_log_on_a_node_that_does_not_answer_is_not_read() -> None:
    """On three nodes: each such log took the API server 10 s, and the Leases ran out in a step of 49 s."""
    fine = broker_set()
    lost = replace(fine.pods[0], ready=False, trouble="NodeLost: node n-2 does not answer")
    starting = replace(fine.pods[1], ready=False)
    case = open_gate(Phase.ROLLING_BROKERS)
    kubernetes = Mock()
    kubernetes.pod_logs.return_value = ""
    sets = (replace(fine, pods=(lost, starting, *fine.pods[2:])),)
    LogReader(kubernetes).clues(Migration(case.identity, case.spec, case.status), sets, Unobserved("x", "y"))
    assert {call.args[1] for call in kubernetes.pod_logs.call_args_list} == {starting.name}


def test_neither_is_the_log_of_a_start_on_such_a_node() -> None:
    fine = broker_set()
    lost = replace(fine.pods[0], ready=False, trouble="NodeLost: node n-2 does not answer")
    case = open_gate(Phase.ROLLING_BROKERS).with_status(watched_start=WatchedStart(pod=lost.name, process=lost.process))
    kubernetes = Mock()
    sets = (replace(fine, pods=(lost, *fine.pods[1:])),)
    with pytest.raises(ObservationError, match="node n-2 does not answer"):
        LogReader(kubernetes).start(Migration(case.identity, case.spec, case.status), sets)
    kubernetes.pod_logs.assert_not_called()


def test_a_start_that_finds_no_mark_of_a_clean_shutdown_stops_the_roll(operator: Operator) -> None:
    """Here pods end at once: nothing else shows that Kafka was killed."""
    line = "Recovering 5 logs from /data since no clean shutdown file was found (kafka.log.LogManager)"
    operator.walk(Phase.TAKING_OVER)
    operator.kubernetes.logs = dict.fromkeys(("kafka-0", "kafka-1", "kafka-2"), f"INFO x\n{line}\nINFO y")
    operator.rest(40)
    killed = operator.status().killed_broker
    assert killed is not None
    assert killed.reason.endswith("since no clean shutdown file was found")
    assert [name for verb, _, name in operator.acts() if verb == "evict"] == [killed.pod]
    stalled = condition(operator.status().conditions, ConditionType.STALLED)
    assert stalled is not None
    assert "BrokerKilled on StatefulSet/kafka" in stalled.message


def test_a_broker_without_logs_to_recover_is_no_killed_one(operator: Operator) -> None:
    line = "Recovering 0 logs from /data since no clean shutdown file was found"
    operator.walk(Phase.TAKING_OVER)
    operator.kubernetes.logs = dict.fromkeys(("kafka-0", "kafka-1", "kafka-2"), line)
    operator.walk(Phase.DUAL_WRITE)
    assert operator.status().killed_broker is None


def test_a_log_without_lines_of_info_does_not_say_how_a_broker_ended(operator: Operator) -> None:
    """Here pods end between two looks, so that nobody sees how."""
    operator.walk(Phase.TAKING_OVER)
    operator.kubernetes.logs = dict.fromkeys(
        ("kafka-0", "kafka-1", "kafka-2"), "WARN something (kafka.server.KafkaServer)"
    )
    operator.rest(40)
    killed = operator.status().killed_broker
    assert killed is not None
    assert killed.reason.startswith("nobody saw it end")
    assert [name for verb, _, name in operator.acts() if verb == "evict"] == [killed.pod]


def test_an_answer_from_before_the_broker_was_back_is_read_again(operator: Operator) -> None:
    """A demonstration was held up for good: the log had been read 4 s before ``LogManager`` wrote, and the broker served by then."""
    operator.walk(Phase.TAKING_OVER)
    seen: Counter[str] = Counter()

    def write(verb: str, _kind: str, name: str) -> None:
        """Let a process be silent in the first look, which reads the end and the beginning, and tell in all later ones."""
        if verb != "pod_logs" or not name.startswith("kafka-"):
            return
        uid = operator.kubernetes.objects["Pod", "kafka", name]["metadata"]["uid"]
        seen[uid] += 1
        is_first = seen[uid] <= 2
        operator.kubernetes.logs[name] = STARTING if is_first else "INFO No logs found to be loaded in /data"

    operator.kubernetes.before_call = write
    operator.walk(Phase.DUAL_WRITE)
    assert operator.status().killed_broker is None


def test_lines_of_the_state_change_logger_are_kafkas() -> None:
    """A broker of 463 partitions in migration mode ended its start with more than 400 of them (Bitnami's image)."""
    line = (
        "[2026-11-27 23:52:33,302] INFO [Broker id=0] Skipped the become-follower state change for app-01-0 with topic "
        "id Some(x) and partition state y since it is already a follower with leader epoch 1 (state.change.logger)"
    )
    assert OF_KAFKA.search(line)


@pytest.mark.parametrize(
    "line",
    [
        "Skipping recovery of 61 logs from /data since clean shutdown file was found",
        "Skipping recovery for all logs in /data dir since clean shutdown file was found",
        "No logs found to be loaded in /data",
    ],
)
def test_a_start_that_finds_its_logs_closed_goes_on(operator: Operator, line: str) -> None:
    operator.walk(Phase.TAKING_OVER)
    operator.kubernetes.logs = dict.fromkeys(("kafka-0", "kafka-1", "kafka-2"), line)
    operator.walk(Phase.DUAL_WRITE)
    assert operator.status().killed_broker is None


def test_past_the_deadline_stalled_says_what_the_logs_say(operator: Operator) -> None:
    held_up(operator)
    line, name = "INFO Still waiting for ZK brokers [2] to register with KRaft.", operator.controllers()
    operator.kubernetes.logs = {f"{name}-3001": line, f"{name}-3000": "INFO nothing of interest"}
    before = len(read(operator))
    operator.clock.advance(3600)
    operator.rest(2)
    since = read(operator)[before:]
    assert {f"{name}-{i}" for i in (3000, 3001, 3002)} <= set(since)
    assert len(since) == len(set(since)), "each log once in a while"
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
