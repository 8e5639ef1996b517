"""Stuck: what Kafka's own log lines say is named with node and fix, and Stalled carries it once the deadline is over."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.support.observations import NOW, Situation, controllers_workload, open_gate, with_pods, zookeeper

from kraftbridge.models.catalogue import CheckedBy, Code
from kraftbridge.models.conditions import ConditionType, condition
from kraftbridge.models.observation import (
    PATTERNS,
    Clue,
    ControllersWorkload,
    StatefulSetState,
    Unobserved,
    clues_in,
    meaning_of,
)
from kraftbridge.models.phase import Phase
from kraftbridge.models.pod_problem import PodProblem
from kraftbridge.models.status import Waiting, WaitKind
from kraftbridge.phases.gates import is_slow
from kraftbridge.storage.ports import LOG_BYTES

LINES = {
    Code.BROKERS_NOT_REGISTERED: (
        "[2026-03-04 05:06:07,123] INFO [KRaftMigrationDriver id=3000] Still waiting for ZK brokers [2] to register with KRaft. (org.apache.kafka.metadata.migration.KRaftMigrationDriver)",
        "waits for ZK brokers [2]",
    ),
    Code.CONTROLLERS_NOT_READY: (
        "INFO [KRaftMigrationDriver id=3000] Still waiting for all controller nodes ready to begin the migration due to: Controller 3002 has not registered yet. (x)",
        "Controller 3002 has not registered yet",
    ),
    Code.DRIVER_STATE: (
        "INFO [KRaftMigrationDriver id=3000] 3000 transitioning from ZK_MIGRATION to SYNC_KRAFT_TO_ZK state (x)",
        "driver is in state SYNC_KRAFT_TO_ZK",
    ),
    Code.LEFTOVER_IN_THE_WAY: (
        "java.lang.RuntimeException: The log dir Log(dir=/data/kafka/old-topic-0, topic=old-topic, partition=0, highWatermark=0, lastStableOffset=0, logStartOffset=0, logEndOffset=0) does not have a topic ID, which is not allowed when running in KRaft mode.",
        "/data/kafka/old-topic-0",
    ),
    Code.MIGRATION_ZNODE_CONFLICT: (
        "java.lang.RuntimeException: Conditional update on KRaft Migration ZNode failed. Sent zkVersion = 9. This indicates that another KRaft controller is making writes to ZooKeeper.",
        "/migration",
    ),
    Code.NO_AUTH_IN_ZOOKEEPER: (
        "org.apache.zookeeper.KeeperException$NoAuthException: KeeperErrorCode = NoAuth for /config/topics",
        "znode /config/topics",
    ),
    Code.BROKER_ZNODE_EXISTS: (
        "org.apache.zookeeper.KeeperException$NodeExistsException: KeeperErrorCode = NodeExists for /brokers/ids/1",
        "/brokers/ids/1",
    ),
    Code.ZOOKEEPER_SESSION: ("KeeperErrorCode = ConnectionLoss for /controller", "ConnectionLoss"),
    Code.WRONG_CLUSTER_ID: (
        "ERROR [RaftManager id=1] Unexpected error INCONSISTENT_CLUSTER_ID in VOTE response: InboundResponse",
        "another cluster",
    ),
    Code.DISK_FULL: ("java.io.IOException: No space left on device", "disk is full"),
    Code.OUT_OF_MEMORY: ("java.lang.OutOfMemoryError: Java heap space", "Java heap space"),
    Code.CONFIG_REFUSED: (
        "java.lang.IllegalArgumentException: requirement failed: control.plane.listener.name is not supported in KRaft mode.",
        "control.plane.listener.name is not supported",
    ),
    Code.CERTIFICATE_EXPIRED: (
        "Caused by: java.security.cert.CertificateExpiredException: NotAfter: Mon Nov 23 02:24:34 UTC 2026",
        "has expired (NotAfter: Mon Nov 23 02:24:34 UTC 2026)",
    ),
    Code.CERTIFICATE_NAME_MISMATCH: (
        "Caused by: java.security.cert.CertificateException: No subject alternative names matching IP address 127.0.0.1 found",
        "has another name (No subject alternative names matching IP address 127.0.0.1 found)",
    ),
    Code.CERTIFICATE_NOT_TRUSTED: (
        "Caused by: javax.net.ssl.SSLHandshakeException: PKIX path building failed: sun.security.provider.certpath.SunCertPathBuilderException: unable to find valid certification path to requested target",
        "does not trust the certificate",
    ),
    Code.CERTIFICATE_REFUSED: (
        "Caused by: javax.net.ssl.SSLHandshakeException: Received fatal alert: certificate_unknown",
        "refuses its certificate, or its lack of one (certificate_unknown)",
    ),
    Code.LOGIN_MISSING: (
        "java.lang.IllegalArgumentException: Could not find a 'KafkaServer' or 'controller.KafkaServer' entry in the JAAS configuration. System property 'java.security.auth.login.config' is not set",
        "no JAAS configuration",
    ),
    Code.AUTHENTICATION_FAILED: (
        "org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed: Invalid username or password",
        "Invalid username or password",
    ),
    Code.NOT_AUTHORIZED: ("broker registration: CLUSTER_AUTHORIZATION_FAILED", "do not authorize"),
    Code.NAME_NOT_RESOLVED: ("java.net.UnknownHostException: demo-kraft-3000.demo-kraft.kafka.svc", "demo-kraft-3000"),
    Code.BLANK_VOLUME: ("volume of controller 3001 is blank and formatting is not allowed any more; see docs", "blank"),
    Code.LOG_DIR_FAILED: ("ERROR Shutdown broker because all log dirs in /data/a have failed (kafka.log.LogManager)", "/data/a"),
    Code.FATAL: ("ERROR Encountered fatal fault: Error starting LogManager (x)", "Error starting LogManager"),
}  # fmt: skip


def test_every_code_of_the_catalogue_that_logs_show_has_a_pattern() -> None:
    assert set(PATTERNS) == {code for code in Code if code.checked_by is CheckedBy.LOGS}
    assert all(code.details <= {"detail"} for code in PATTERNS)


@pytest.mark.parametrize("code", PATTERNS)
def test_each_line_is_recognized_said_and_has_a_fix(code: Code) -> None:
    line, words = LINES[code]
    found = clues_in(f"INFO something else\n{line}\nINFO more")
    assert code in {c.code for c in found}
    clue = next(c for c in found if c.code is code)
    assert words in meaning_of(clue)
    assert clue.code.fix


@pytest.mark.parametrize(
    "words",
    [
        "Shutdown broker because all log dirs in ",
        "Failed authentication with a (channelId=b) (",
        "Error while reading ",
    ],
)
def test_a_line_of_any_length_is_read_in_time_that_grows_with_it(words: str) -> None:
    """An image prints what it likes, and the operator reads its log for one tenant of many."""
    line = (words * (LOG_BYTES // len(words)))[:LOG_BYTES]
    began = time.process_time()
    clues_in(line)
    assert time.process_time() - began < 5.0


def test_the_last_line_of_a_kind_counts_and_the_telling_one_comes_first() -> None:
    log = """transitioning from INACTIVE to WAIT_FOR_BROKERS state
        Still waiting for ZK brokers [1, 2] to register with KRaft.
        Still waiting for ZK brokers [2] to register with KRaft."""
    assert clues_in(log) == (
        Clue(Code.BROKERS_NOT_REGISTERED, "2"),
        Clue(Code.DRIVER_STATE, "WAIT_FOR_BROKERS"),
    )
    assert clues_in("") == ()


def waiting_long(minutes: int = 40) -> Situation:
    """Return TakingOver after all restarts, waiting for a copy that does not begin."""
    since = NOW - timedelta(minutes=minutes)
    fine = open_gate(Phase.TAKING_OVER).with_status(migration_offset=None)
    silent = fine.observing(zookeeper=replace(zookeeper(taken_over=True), migration=None))
    silent = silent.after(silent.decide())  # its verification is armed, which is progress
    return silent.with_status(progress_at=since, waiting=Waiting(kind=WaitKind.WORK, since=since))


CLUES = {
    "controller 3000": (Clue(Code.BROKERS_NOT_REGISTERED, "2"), Clue(Code.DRIVER_STATE, "WAIT_FOR_BROKERS")),
    "controller 3001": (Clue(Code.DRIVER_STATE, "INACTIVE"),),
}


def test_past_its_deadline_stalled_names_node_and_fix() -> None:
    decision = waiting_long().observing(clues=CLUES).decide()
    found = condition(decision.status.conditions, ConditionType.STALLED)
    assert found is not None
    assert (found.status, found.reason) == ("True", "DeadlineExceeded")
    assert "controller 3000: it waits for ZK brokers [2] to register with KRaft" in found.message
    assert "its migration driver is in state WAIT_FOR_BROKERS" in found.message
    assert "Check the logs of these brokers" in found.message
    assert "INACTIVE" not in found.message, "a state alone says less than a reason"


def test_before_the_deadline_it_is_told_without_alarm() -> None:
    decision = waiting_long(3).observing(clues=CLUES).decide()
    found = condition(decision.status.conditions, ConditionType.STALLED)
    assert found is not None
    assert found.status == "False"
    assert "ZK brokers [2]" in decision.status.message


def test_a_node_without_a_clue_is_passed_over() -> None:
    empty = {"controller 2999": (), **CLUES}
    assert (
        waiting_long().observing(clues=empty).decide().status == waiting_long().observing(clues=CLUES).decide().status
    )


@pytest.mark.parametrize("clues", [{}, {"controller 3000": ()}, Unobserved("log of pod kafka-0", "403")])
def test_without_clues_the_wait_is_told_as_it_is(clues: object) -> None:
    plain = waiting_long().decide().status.message
    assert waiting_long().observing(clues=clues).decide().status.message == plain
    assert "Logs:" not in plain


def test_logs_are_read_only_when_something_that_should_move_does_not() -> None:
    assert is_slow(waiting_long(3).status, NOW)
    fresh = waiting_long(3).with_status(progress_at=NOW - timedelta(seconds=50))
    assert not is_slow(fresh.status, NOW)
    for kind in (WaitKind.USER, WaitKind.SOAK, WaitKind.HOLD):
        assert not is_slow(waiting_long(3).with_status(waiting=Waiting(kind=kind, since=NOW)).status, NOW)
    assert not is_slow(waiting_long(3).with_status(phase=Phase.COMPLETED).status, NOW)


@pytest.mark.parametrize(
    "phase",
    [
        Phase.PROVISIONING_QUORUM,
        Phase.DUAL_WRITE,
        Phase.ROLLING_BROKERS,
        Phase.AWAITING_FINALIZATION,
        Phase.FINALIZING,
    ],
)
def test_a_controller_that_cannot_run_is_named_at_once_whoever_waits(phase: Phase) -> None:
    """Measured: with a full disk, DualWrite said for 216 s that voters had not reached an offset, and of none why."""
    situation = open_gate(phase).with_status(verifications=())
    workload = situation.observation.controllers
    assert isinstance(workload, ControllersWorkload)
    assert workload.stateful_set is not None
    why = "CrashLoopBackOff of container kafka, last exit code 1: No space left on device"
    first, *others = workload.stateful_set.pods
    down = replace(first, ready=False, trouble=why)
    pods = replace(workload, stateful_set=replace(workload.stateful_set, pods=(down, *others)))
    decision = situation.observing(controllers=pods).decide()
    ready = condition(decision.status.conditions, ConditionType.READY)
    assert ready is not None
    assert f"pod {first.name}" in ready.message
    assert ready.message.count(why) == 1


@pytest.mark.parametrize(
    ("line", "detail"),
    [
        (
            "ERROR [RaftManager id=3000] Connection to node 3001 (demo-kraft-3001.demo-kraft/10.0.0.1:9093) failed authentication due to: SSL handshake failed (org.apache.kafka.clients.NetworkClient)",
            "node 3001 (demo-kraft-3001.demo-kraft/10.0.0.1:9093): SSL handshake failed",
        ),
        (
            "INFO [SocketServer listenerType=CONTROLLER, nodeId=3000] Failed authentication with /10.0.0.2 (channelId=10.0.0.1:9093-10.0.0.2:43126-0) (SSL handshake failed) (org.apache.kafka.common.network.Selector)",
            "/10.0.0.2: SSL handshake failed",
        ),
    ],
    ids=["client", "server"],
)
def test_a_refused_connection_is_said_with_its_other_side(line: str, detail: str) -> None:
    (clue,) = clues_in(f"{line}\norg.apache.kafka.common.errors.SslAuthenticationException: SSL handshake failed")
    assert clue == Clue(Code.AUTHENTICATION_FAILED, detail)


def test_what_ends_a_pods_problem_is_said_once_for_brokers_and_controllers() -> None:
    fine = open_gate(Phase.DUAL_WRITE)
    (item,) = fine.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    first, *others = item.pods
    down = replace(first, ready=False, ready_since=None, trouble="ImagePullBackOff of container kafka: no such tag")
    case = fine.observing(stateful_sets=(replace(item, pods=(down, *others)),))
    message = case.decide().status.message
    assert first.name in message
    assert message.count(PodProblem.IMAGE) == 1
    controllers = with_pods(
        controllers_workload(), 3001, 3002, ready=False, ready_since=None, trouble="CrashLoopBackOff (OOMKilled)"
    )
    message = case.observing(controllers=controllers).decide().status.message
    assert message.count(PodProblem.MEMORY) == 1


@pytest.mark.parametrize(
    ("trouble", "stalled"),
    [
        ("CrashLoopBackOff of container kafka: last exit code 1", "False"),
        ("CrashLoopBackOff of container kafka: last exit code 137 (OOMKilled)", "True"),
        ("Unschedulable: 0/3 nodes are available", "False"),
        ("ImagePullBackOff of container kafka: no such tag", "True"),
        ("NodeLost: node worker-2 does not answer", "False"),
    ],
)
def test_before_the_quorum_exists_only_what_ends_by_itself_is_waited_for(trouble: str, stalled: str) -> None:
    down = with_pods(controllers_workload(), 3001, ready=False, ready_since=None, trouble=trouble)
    decision = open_gate(Phase.PROVISIONING_QUORUM).observing(controllers=down).decide()
    found = condition(decision.status.conditions, ConditionType.STALLED)
    assert found is not None
    assert found.status == stalled
    assert trouble in decision.status.message
