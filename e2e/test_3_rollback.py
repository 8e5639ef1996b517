"""Changes of the controllers in dual-write, a start in KRaft mode that is undone, then a rollback, under load, with brokers that are configured by a properties file."""

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from e2e.harness.bare import OF_THE_LOAD, inventory_differences
from e2e.harness.foreign import ForeignCluster, Style
from e2e.harness.kube import REPOSITORY, CommandFailedError, Kube
from e2e.harness.load import Load, client_impact
from e2e.harness.migration import Migration, View, controller_sets, controller_volumes, controllers_name, manifest
from e2e.harness.operator_install import OperatorInstall

NAMESPACE = "kafka-rollback"
ARTIFACTS = REPOSITORY / ".artifacts/rollback"
TIMEOUT_S = 900
CHANGE_TIMEOUT_S = 420


@pytest.fixture(scope="module")
def cluster(kube: Kube) -> Iterator[ForeignCluster]:
    foreign = ForeignCluster(kube, NAMESPACE, Style.PROPERTIES)
    foreign.up()
    foreign.seed()
    operator = OperatorInstall(kube, NAMESPACE)
    operator.install_spark_operator()
    operator.install()
    yield foreign
    # While the operator is there to take its finalizer away.
    kube.kubectl("delete", "kafkamigrations.kraftbridge.dev", "--all", "-n", NAMESPACE, "--timeout=60s")
    operator.uninstall()
    foreign.down()


@dataclass(frozen=True)
class DualWrite:
    """A migration that has reached dual-write, and what was there before it."""

    migration: Migration
    load: Load
    template: object
    inventory: dict[str, Any]


@pytest.fixture(scope="module")
def dual_write(cluster: ForeignCluster) -> DualWrite:
    template = _template(cluster)
    load = Load(cluster)
    load.start()  # makes __consumer_offsets
    inventory = cluster.inventory()
    cluster.kube.apply(json.dumps(manifest(cluster, target="DualWrite", runner="Job")), NAMESPACE)
    migration = Migration(cluster.kube, NAMESPACE)
    forward = _rest(migration, "DualWrite", load)
    channel = forward.status["channel"]  # the resource names none
    assert (channel["configStyle"], channel["volume"], channel["key"]) == ("Properties", "config", "server.properties")
    assert channel["provenAt"]
    assert forward.condition("RollbackPossible")["status"] == "True"
    return DualWrite(migration, load, template, inventory)


@pytest.mark.long
@pytest.mark.usefixtures("dual_write")
@pytest.mark.timeout(1800)
def test_helm_does_not_remove_the_operator_of_a_migration_that_moves(cluster: ForeignCluster) -> None:
    kube = cluster.kube
    operator = OperatorInstall(kube, NAMESPACE)
    before = {pod["metadata"]["uid"] for pod in operator.pods()}
    with pytest.raises(CommandFailedError, match="phase DualWrite is not at rest") as refused:
        operator.uninstall(as_a_user=True)
    assert {pod["metadata"]["uid"] for pod in operator.pods()} == before
    assert _status(kube)["phase"] == "DualWrite"
    # Helm upgrades the release only after what the refusal names.
    (command,) = re.findall(r"only after: helm (rollback .+)", str(refused.value))
    kube.helm(*command.split())
    assert {pod["metadata"]["uid"] for pod in operator.pods()} == before
    operator.install()
    _until(kube, lambda status: _condition(status, "Ready")["status"] == "True")


@pytest.mark.long
@pytest.mark.usefixtures("dual_write")
@pytest.mark.timeout(1800)
def test_a_changed_heap_is_rolled_out_in_dual_write(cluster: ForeignCluster) -> None:
    """One voter after the other, the active one last, and dual-write goes on."""
    kube = cluster.kube
    before, leader = _voters(kube), _status(kube)["quorum"]["leaderId"]
    _edit(kube, heapOptions="-Xmx200m")
    _until(kube, lambda status: status["controllers"]["rendered"]["heapOptions"] == "-Xmx200m")
    _until(kube, lambda status: "change" not in status["controllers"])
    after = _voters(kube)
    assert {v.heap for v in after.values()} == {"-Xmx200m"}
    assert not {v.uid for v in before.values()} & {v.uid for v in after.values()}
    assert max(after, key=lambda node: after[node].created) == leader
    _until(kube, lambda status: status["phase"] == "DualWrite" and _condition(status, "Ready")["status"] == "True")


@pytest.mark.long
@pytest.mark.usefixtures("dual_write")
@pytest.mark.timeout(1800)
def test_a_voter_that_fails_on_a_changed_configuration_gets_the_old_one_back(cluster: ForeignCluster) -> None:
    kube = cluster.kube
    before = _voters(kube)
    _edit(kube, config={"num.io.threads": "many"})
    failed = _until(kube, lambda status: _condition(status, "Stalled")["reason"] == "ControllersChangeFailed")
    words = _condition(failed, "Stalled")["message"]
    wanted = {v.configuration for v in before.values()}
    after: dict[int, Voter] = {}

    def all_as_before(_: object) -> bool:
        # A container that is about to fail counts as ready for a moment, so its configuration counts, too.
        after.clear()
        after.update(_voters(kube))
        fine = all(v.ready and v.configuration in wanted for v in after.values())
        return len(after) == len(before) and fine

    _until(kube, all_as_before)
    replaced = [node for node in before if before[node].uid != after[node].uid]
    assert len(replaced) == 1, "one voter tries a new configuration, and no other before it is back"
    assert f"controller {replaced[0]}" in words
    assert {v.configuration for v in after.values()} == {v.configuration for v in before.values()}
    _edit(kube, config=None)
    _until(
        kube,
        lambda status: "change" not in status["controllers"] and _condition(status, "Stalled")["status"] == "False",
    )
    assert {v.uid for v in _voters(kube).values()} == {v.uid for v in after.values()}, "a reverted change restarts none"


@pytest.mark.timeout(1800)
def test_defaults_that_kraft_refuses_are_noticed_before_a_restart_and_undone_after_one(
    cluster: ForeignCluster, dual_write: DualWrite
) -> None:
    """``num.io.threads`` grows in legal steps, until a start in KRaft mode refuses it and ``log.retention.ms=-1`` with it."""
    kube, migration = cluster.kube, dual_write.migration
    for threads in (16, 32):
        cluster.run_client("alter_defaults", f"num.io.threads={threads}")
    before = _brokers(cluster)
    migration.patch({"spec": {"target": "KRaftBrokers"}})
    refused = _until(kube, lambda status: "DynamicSettingsRefused" in _condition(status, "Stalled")["message"])
    assert "log.retention.ms" in refused["message"]
    assert _brokers(cluster) == before
    migration.accept("DynamicSettingsRefused")
    held = _until(kube, lambda status: "finishedAt" in status.get("brokerUndo", {}))
    assert "log.retention.ms was -1" in held["brokerUndo"]["reason"]
    assert "could not be applied" in held["brokerUndo"]["reason"]
    after = _brokers(cluster)
    assert sum(before[pod] != after[pod] for pod in before) == 1, "no other broker restarts"
    again = _until(kube, lambda status: _condition(status, "Stalled")["status"] == "True")
    assert "was taken back to migration mode" in again["message"]
    assert _brokers(cluster) == after


def _brokers(cluster: ForeignCluster) -> dict[str, str]:
    """Return the UID of each broker's pod."""
    pods = {p["metadata"]["name"]: p["metadata"]["uid"] for p in cluster.kube.list("pod", NAMESPACE)}
    return {name: pods[name] for name in cluster.broker_pods}


@pytest.mark.timeout(1800)
def test_back(cluster: ForeignCluster, dual_write: DualWrite) -> None:
    """Brokers, fields and owners are as before, nothing is lost, and the znodes of the migration are gone."""
    kube, migration = cluster.kube, dual_write.migration
    # Jobs ran the verifications until now, a driver with an executor runs those from here on; in the demo the driver compares alone.
    migration.patch({"spec": {"verification": {"runner": "SparkApplication", "executors": 1}, "target": "ZooKeeper"}})
    back = _rest(migration, "RolledBack", dual_write.load)
    gates = {v["gate"]: v.get("verdict") for v in back.status["verifications"]}
    assert gates["RollingBack"] == "Consistent"
    pods = {e["involvedObject"]["name"] for e in kube.list("events", NAMESPACE) if e["involvedObject"]["kind"] == "Pod"}
    assert any("-exec-" in name for name in pods), "the verification before the rollback ran on an executor"
    rollback = back.status["rollback"]
    # The controllers stopped after ZooKeeper had what isolated controllers, which nobody can write to, found in the log.
    assert rollback["isolatedAt"] <= rollback["controllersStoppedAt"]
    assert int(rollback["mirroredOffset"]) >= int(rollback["isolatedHighWatermark"]) - 1
    assert _template(cluster) == dual_write.template
    assert controller_sets(kube, NAMESPACE, "demo") == set()
    name = controllers_name(kube, NAMESPACE, "demo")
    assert controller_volumes(kube, NAMESPACE, "demo") == {f"data-{name}-{i}" for i in (3000, 3001, 3002)}
    lines = dual_write.load.stop()
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    (ARTIFACTS / "load.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (ARTIFACTS / "kmig.json").write_text(json.dumps(back.resource, indent=2))
    for value in ("16", ""):
        cluster.run_client("alter_defaults", f"num.io.threads={value}")
    impact = client_impact(lines)
    assert impact.unharmed, json.dumps(impact.as_json())
    assert inventory_differences(dual_write.inventory, cluster.inventory(), OF_THE_LOAD) == []
    assert cluster.prove_serving()


def _rest(migration: Migration, phase: str, load: Load) -> View:
    for view in migration.follow(TIMEOUT_S):
        load.look(view)
        if view.phase == phase and view.condition("Ready")["status"] == "True":
            return view
    raise AssertionError("following ends with the phase or an exception")


@dataclass(frozen=True)
class Voter:
    """A controller's pod."""

    uid: str
    created: str
    ready: bool
    configuration: str
    heap: str


def _voters(kube: Kube) -> dict[int, Voter]:
    """Return the controllers' pods that are not being deleted, by node id."""
    found = {}
    for pod in kube.list("pod", NAMESPACE, "kraftbridge.dev/migration=demo,kraftbridge.dev/role=controller"):
        metadata, (kafka, *_) = pod["metadata"], pod["spec"]["containers"]
        if "deletionTimestamp" in metadata:
            continue
        conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", [])}
        found[int(metadata["name"].rpartition("-")[2])] = Voter(
            uid=metadata["uid"],
            created=metadata["creationTimestamp"],
            ready=conditions.get("Ready") == "True",
            configuration=metadata["annotations"]["kraftbridge.dev/configuration"],
            heap=next(e["value"] for e in kafka["env"] if e["name"] == "KAFKA_HEAP_OPTS"),
        )
    return found


def _edit(kube: Kube, **controllers: object) -> None:
    patch = json.dumps({"spec": {"controllers": controllers}})
    kube.kubectl("patch", "kafkamigrations.kraftbridge.dev/demo", "-n", NAMESPACE, "--type=merge", "-p", patch)


def _status(kube: Kube) -> dict[str, Any]:
    migration = kube.get("kafkamigrations.kraftbridge.dev", "demo", NAMESPACE)
    assert migration is not None
    status: dict[str, Any] = migration["status"]
    return status


def _condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(c for c in status["conditions"] if c["type"] == kind)


def _until(kube: Kube, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    until = time.monotonic() + CHANGE_TIMEOUT_S
    while not holds(status := _status(kube)):
        assert time.monotonic() < until, status["message"]
        time.sleep(0.5)
    return status


def _template(cluster: ForeignCluster) -> object:
    stateful_set = cluster.kube.get("statefulset", cluster.brokers, NAMESPACE)
    assert stateful_set is not None
    annotations = {k: v for k, v in stateful_set["metadata"].get("annotations", {}).items() if "kraftbridge" in k}
    return stateful_set["spec"], annotations
