"""Two KafkaMigrations of one cluster: the younger one, or the one that has not left Preflight, is refused and names the other one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.observations import BROKER_SET, CLUSTER_ID, IDENTITY, Situation, open_gate, survey

from kraftbridge.models.observation import Unobserved
from kraftbridge.models.phase import Phase
from kraftbridge.models.spec import AcceptedFinding, PreflightSpec
from kraftbridge.models.survey import MigrationClaim

CONNECT = "zk-0.zk:2181/kafka"
OWN = MigrationClaim(
    IDENTITY.namespace,
    IDENTITY.name,
    IDENTITY.uid,
    "2026-03-01T10:00:00Z",
    "Preflight",
    frozenset({BROKER_SET}),
    CONNECT,
    "",
)
OLDER = MigrationClaim(
    "elsewhere", "older", "0-older", "2026-02-01T10:00:00Z", "Preflight", frozenset({"others"}), "zoo:2181", ""
)


def beside(*others: MigrationClaim, own: MigrationClaim | None = OWN) -> Situation:
    """Return a migration in Preflight beside others."""
    claims = others if own is None else (own, *others)
    return open_gate(Phase.PREFLIGHT).observing(survey=survey(migrations=claims))


def found(situation: Situation) -> list[tuple[str, str]]:
    decision = situation.decide()
    made = [(f.object, f.reason) for f in decision.status.findings if f.code == "AnotherMigration"]
    assert (decision.status.phase is Phase.PREFLIGHT) is bool(made)
    return made


def test_a_migration_of_another_cluster_is_none_of_our_business() -> None:
    assert found(beside(OLDER)) == []


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("created", ["2026-02-01T10:00:00Z", "2026-04-01T10:00:00Z"])
def test_the_younger_one_is_refused_and_before_all_the_one_that_has_not_left_preflight(
    phase: Phase, created: str
) -> None:
    other = replace(
        OLDER, namespace="kafka", stateful_sets=frozenset({"x", BROKER_SET}), phase=phase, created_at=created
    )
    is_first = created < OWN.created_at or not phase.row.is_open
    words = found(beside(other))
    assert bool(words) is is_first
    if words:
        assert words[0][0] == "KafkaMigration/kafka/older"
        assert f"KafkaMigration kafka/older (phase {phase})" in words[0][1]
        assert f"StatefulSet {BROKER_SET}" in words[0][1]


@pytest.mark.parametrize(
    ("namespace", "connect"),
    [
        ("kafka", CONNECT),
        ("kafka", "zk-1.zk:2181,zk-0.zk:2181/kafka"),
        ("kafka", "ZK-0.zk/kafka/"),
        ("kafka", "zk-0.zk.kafka.svc.cluster.local:2181//kafka"),
        ("kafka", "zk-0.zk.kafka.svc:2181/kafka"),
        ("elsewhere", "zk-0.zk.kafka:2181/kafka"),
        ("elsewhere", "zk-2.zk.kafka.svc.cluster.local.,zk-0.zk.kafka.svc.cluster.local./kafka"),
    ],
)
def test_the_same_ensemble_in_another_spelling_is_the_same(namespace: str, connect: str) -> None:
    (words,) = found(beside(replace(OLDER, namespace=namespace, connect=connect)))
    assert "ZooKeeper zk-0.zk.kafka.svc.cluster.local:2181/kafka" in words[1]


@pytest.mark.parametrize(
    ("namespace", "connect"),
    [
        ("elsewhere", CONNECT),
        ("kafka", "zk-0.zk:2182/kafka"),
        ("kafka", "zk-0.zk:2181"),
        ("kafka", "zk-0.zk:2181/kafka/two"),
        ("kafka", "zk-0.zk.example.com:2181/kafka"),
    ],
)
def test_another_ensemble_port_or_chroot_is_another_cluster(namespace: str, connect: str) -> None:
    assert found(beside(replace(OLDER, namespace=namespace, connect=connect))) == []


@pytest.mark.parametrize("address", ["10.0.0.7", "fd00::7", "zk.example.com"])
def test_addresses_and_names_of_outside_are_the_same_from_every_namespace(address: str) -> None:
    connect = f"[{address}]:2181/kafka" if ":" in address else f"{address}/kafka"
    case = beside(replace(OLDER, connect=connect))
    zookeeper = case.spec.zookeeper.model_copy(update={"connect": connect})
    (words,) = found(case.asking(zookeeper=zookeeper))
    assert address in words[1]


def test_the_same_cluster_id_is_enough_and_a_clone_may_be_accepted() -> None:
    case = beside(replace(OLDER, cluster_id=CLUSTER_ID))
    (words,) = found(case)
    assert f"cluster id {CLUSTER_ID}" in words[1]
    accepted = AcceptedFinding(code="AnotherMigration", object="KafkaMigration/elsewhere/older")
    assert case.asking(preflight=PreflightSpec(accepted=(accepted,))).decide().status.phase is not Phase.PREFLIGHT


def test_one_that_is_not_in_the_list_is_the_youngest() -> None:
    other = replace(OLDER, cluster_id=CLUSTER_ID, created_at="2026-09-01T10:00:00Z")
    assert found(beside(other, own=None))


def test_others_that_cannot_be_listed_keep_the_gate_closed() -> None:
    case = open_gate(Phase.PREFLIGHT).observing(survey=survey(migrations=Unobserved("API server", "no answer")))
    decision = case.decide()
    assert decision.status.phase is Phase.PREFLIGHT
    assert [f.code for f in decision.status.findings if f.blocks] == ["AnotherMigrationUnknown"]
