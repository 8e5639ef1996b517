"""One migration under load, in which somebody deletes each of the operator's objects in four phases. What comes back, how soon, and what the status says."""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from e2e.harness.bare import OF_THE_LOAD, inventory_differences
from e2e.harness.deleter import Deleter
from e2e.harness.deletions import Deletion, Rest, Thing, write
from e2e.harness.foreign import ForeignCluster
from e2e.harness.kube import REPOSITORY, Kube
from e2e.harness.load import ClientImpact, Load, client_impact
from e2e.harness.migration import Migration, View, manifest
from e2e.harness.operator_install import OperatorInstall
from e2e.harness.row import versions
from e2e.harness.security import Security

NAMESPACE = "kafka-deleted"
ARTIFACTS = REPOSITORY / ".artifacts/deletions"
TIMEOUT_S = 900
ONLY = os.environ.get("DELETIONS", "")
"""Parts of the names of what is deleted, separated by commas; everything without it."""


@dataclass
class Story:
    """The migration, its clients, and what was deleted until now."""

    cluster: ForeignCluster
    migration: Migration
    deleter: Deleter
    load: Load
    inventory: dict[str, Any]
    facts: dict[str, Any]
    done: list[Deletion] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    def follow(self, phase: str, *, first_broker: bool = False) -> View:
        """Return the migration once it is Ready in a phase, or once the first broker of the phase has restarted."""
        for view in self.migration.follow(TIMEOUT_S):
            self.load.look(view)
            # A pause leaves a change of the controllers for the time after it.
            if view.phase != phase or "change" in (view.status.get("controllers") or {}):
                continue
            there = view.brokers.startswith("1/") if first_broker else view.condition("Ready")["status"] == "True"
            if there:
                return view
        raise AssertionError("following ends with the phase or an exception")

    def pause(self) -> None:
        """Stop between two brokers."""
        self.migration.patch({"spec": {"paused": True}})
        for view in self.migration.follow(TIMEOUT_S):
            if view.condition("Reconciling")["reason"] == "Paused":
                return

    def go_on(self, target: str) -> None:
        self.migration.patch({"spec": {"paused": False, "target": target}})

    def delete(self, rest: Rest) -> list[str]:
        """Delete one thing after the other; return what was not as promised."""
        for thing in Thing:
            if not ONLY or any(part in thing.lower() for part in ONLY.split(",")):
                self.done.append(self.deleter.delete(thing, rest))
                write(ARTIFACTS / "unjudged.jsonl", self.done)
        found = inventory_differences(self.inventory, self.cluster.inventory(), OF_THE_LOAD)
        self.differences += [f"{rest}: {what}" for what in found]
        wrong = [f"{d.thing}: {what}" for d in self.done if d.rest is rest for what in d.troubles]
        return [*wrong, *found]


@pytest.fixture(scope="module")
def story(kube: Kube) -> Iterator[Story]:
    cluster = ForeignCluster(kube, NAMESPACE, security=Security.GENERATED)
    cluster.up()
    cluster.seed()
    operator = OperatorInstall(kube, NAMESPACE)
    operator.install()
    load = Load(cluster)
    load.start()
    inventory = cluster.inventory()
    resource = manifest(cluster, target="DualWrite", runner="Job")
    cluster.kube.apply(json.dumps(resource), NAMESPACE)
    migration = Migration(kube, NAMESPACE)
    told = Story(cluster, migration, Deleter(kube, migration), load, inventory, versions(operator))
    yield told
    _keep(told, operator)
    # While the operator is there to take its finalizer away; a migration that did not end is given up.
    resource_name = ["kafkamigrations.kraftbridge.dev", "--all", "-n", NAMESPACE]
    kube.kubectl("annotate", *resource_name, "--overwrite", "kraftbridge.dev/abandon=true")
    kube.kubectl("delete", *resource_name, "--timeout=60s")
    operator.uninstall()
    cluster.down()


@pytest.mark.timeout(2400)
def test_while_the_takeover_is_under_way(story: Story) -> None:
    story.follow("TakingOver", first_broker=True)
    story.pause()
    assert story.delete(Rest.TAKING_OVER) == []


@pytest.mark.timeout(2400)
def test_in_dual_write(story: Story) -> None:
    story.go_on("DualWrite")
    story.follow("DualWrite")
    assert story.delete(Rest.DUAL_WRITE) == []


@pytest.mark.timeout(2400)
def test_while_the_brokers_become_kraft_brokers(story: Story) -> None:
    story.go_on("KRaftBrokers")
    story.follow("RollingBrokers", first_broker=True)
    story.pause()
    assert story.delete(Rest.ROLLING_BROKERS) == []


@pytest.mark.timeout(2400)
def test_before_the_finalization(story: Story) -> None:
    story.go_on("KRaftBrokers")
    story.follow("AwaitingFinalization")
    assert story.delete(Rest.AWAITING_FINALIZATION) == []


@pytest.mark.timeout(1800)
def test_the_migration_ends_as_promised(story: Story) -> None:
    """Completed, every gate verified, no record lost or doubled, no client with an error, all metadata as before."""
    story.go_on("KRaft")
    view = story.follow("Completed")
    assert view.condition("MetadataConsistent")["status"] == "True"
    # The proof that the cluster serves leaves a user with a quota.
    differences = inventory_differences(story.inventory, story.cluster.inventory(), OF_THE_LOAD)
    serving = story.cluster.prove_serving()
    lines = story.load.stop()
    impact = client_impact(lines)
    _judge(story, lines, impact, [*story.differences, *differences])
    assert set(serving.values()) == {"ok"}, serving
    assert differences == []
    assert impact.unharmed, json.dumps(impact.as_json())


def _judge(story: Story, lines: list[dict[str, Any]], impact: ClientImpact, differences: list[str]) -> None:
    """Give each deletion what holds for the whole run, and write the results."""
    facts = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "completed": True, "acked": impact.acked,
        "lost": impact.lost if impact.drained else None, "duplicates": impact.duplicates, "watched": impact.broken,
        "errors": impact.errors, "inventory_differences": differences, **story.facts,
    }  # fmt: skip
    seconds = [line for line in lines if not line.get("final")]

    def judged(deletion: Deletion) -> Deletion:
        began, ended = deletion.window
        meanwhile = [line for line in seconds if began <= line["at"] <= ended + 1]
        stall = max((max(s["max_produce_latency_s"], s["oldest_in_flight_s"]) for s in meanwhile), default=0.0)
        return replace(deletion, longest_stall_s=round(stall, 1), run=facts)

    write(ARTIFACTS / "deletions.jsonl", map(judged, story.done))
    (ARTIFACTS / "load.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def _keep(story: Story, operator: OperatorInstall) -> None:
    """Keep what is needed to find a cause."""
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    view = story.migration.view()
    (ARTIFACTS / "kafkamigration.json").write_text(json.dumps(view.resource if view else {}, indent=1))
    (ARTIFACTS / "operator.log").write_text(operator.log(5000))
    events = story.cluster.kube.kubectl("get", "events", "-n", NAMESPACE, "--sort-by=.lastTimestamp")
    (ARTIFACTS / "events.txt").write_text(events)
