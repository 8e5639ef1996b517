"""What is in the brokers' log directories that does not belong there blocks, with broker, directory and replica."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.observations import ANYONE, BROKER_IDS, open_gate, survey

from kraftbridge.models.decision import Decision
from kraftbridge.models.phase import Phase
from kraftbridge.models.survey import LogDir, Unobserved, Visibility, ZooKeeperAcls

DATA = "/data/kafka"


def decided(log_dirs: Any, accepted: tuple[dict[str, str], ...] = (), **changes: Any) -> Decision:
    case = open_gate(Phase.PREFLIGHT).observing(survey=survey(log_dirs=log_dirs, **changes))
    preflight = case.spec.preflight.model_validate({"accepted": list(accepted)})
    return case.asking(preflight=preflight).decide()


def every(**of: LogDir) -> dict[int, tuple[LogDir, ...] | Unobserved]:
    return {i: (of.get(f"b{i}", LogDir(DATA)), LogDir("/data/second")) for i in BROKER_IDS}


CASES = {
    "LeftoverReplicas": (LogDir(DATA, leftovers=("old-topic-0", "old-topic-7")), ("old-topic-0, old-topic-7", "2,2,…")),
    "LogDirOffline": (LogDir(DATA, error="KAFKA_STORAGE_ERROR"), ("KAFKA_STORAGE_ERROR", "Repair its volume")),
    "ReplicasMoving": (LogDir(DATA, future=("t-3",)), ("t-3", "--broker-list 2")),
}


@pytest.mark.parametrize("code", CASES)
def test_it_blocks_and_names_broker_directory_and_partition(code: str) -> None:
    directory, words = CASES[code]
    decision = decided(every(b2=directory))
    (each,) = decision.status.findings
    assert (each.code, each.object, each.severity) == (code, f"broker/2 {DATA}", "Blocking")
    assert f"{DATA}" in each.reason
    assert "roker 2" in each.reason
    assert all(word in each.reason + each.fix for word in words)
    assert decision.status.phase is Phase.PREFLIGHT
    accepted = ({"code": code, "object": each.object},)
    assert decided(every(b2=directory), accepted).status.phase is Phase.PROVISIONING_QUORUM


def test_clean_directories_are_no_finding() -> None:
    decision = decided(every())
    assert decision.status.findings == ()
    assert decision.status.phase is Phase.PROVISIONING_QUORUM


@pytest.mark.parametrize(
    ("log_dirs", "name"),
    [
        (Unobserved("brokers", "none answered"), "brokers"),
        (every() | {1: Unobserved("broker 1", "CLUSTER_AUTHORIZATION_FAILED")}, "broker/1"),
    ],
)
def test_directories_that_nobody_has_listed_block(log_dirs: Any, name: str) -> None:
    decision = decided(log_dirs)
    assert [(f.code, f.object) for f in decision.status.findings] == [("LogDirsUnknown", name)]
    assert decision.status.phase is Phase.PREFLIGHT


def test_replicas_of_topics_that_are_hidden_from_the_operator_are_not_called_left_over() -> None:
    zookeeper = ZooKeeperAcls({"/": ANYONE}, (), frozenset({"t", "hidden-1"}))
    visible = survey().visibility
    assert isinstance(visible, Visibility)
    directory = LogDir(DATA, leftovers=("gone-1", "hidden-1-0"))
    decision = decided(every(b0=directory), zookeeper=zookeeper, visibility=replace(visible, topics=frozenset({"t"})))
    found = {f.code: f.reason for f in decision.status.findings}
    assert found.keys() == {"TopicsHidden", "LeftoverReplicas"}
    assert "gone-1" in found["LeftoverReplicas"]
    assert "hidden" not in found["LeftoverReplicas"]
