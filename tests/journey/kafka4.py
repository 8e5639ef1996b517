"""Takes migrated clusters on to Kafka 4 and back while clients work: ``python -m tests.journey.kafka4``.

Each cluster begins on ZooKeeper with the bridge release and is finalized first: its metadata log was written by the migration.
Controllers restart before brokers on the way there, the active one last, and after them on the way back:
a broker may register only with a controller that supports its features (KIP-584).
There is a way back until a feature is raised.

Resumable: a journey that has a result is not made again.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

from tests.journey import page
from tests.journey.travel import (
    BRIDGE,
    CONTROLLERS,
    Journey,
    Roll,
    Traveller,
    TravellingProcesses,
    Way,
    attempted,
    journey_of,
    present_commit,
    through_migration,
    undertaken,
)
from tests.support.kafka_processes import FINAL, KAFKA_VERSION, KRAFT, POM, kafka_libraries, wait_for
from tests.support.programs import maven_jars
from tests.support.running_load import RunningLoad
from typing_extensions import override

from kraftbridge.storage.kafka_controllers import ControllerClient
from kraftbridge.storage.zookeeper import ZooKeeperStore

RESULTS: Final = Path(__file__).resolve().parents[2] / "benchmarks" / "measured" / "journey-kafka4"
RELEASES: Final = ("4.0.2", "4.1.2", "4.2.1", "4.3.1", "4.4.0")
"""Newest patch of each minor release on Maven Central."""
_SNAPSHOT_MILLISECONDS: Final = 10_000
_SETTLE_SECONDS: Final = 15
"""In which clients work after the last step."""
_METADATA_VERSION: Final = "metadata.version"
_APART: Final = "kraft.version"
"""Makes the quorum dynamic (KIP-853): a decision of its own, and on a static quorum a trap (KAFKA-18979)."""
_FEATURE: Final = re.compile(
    r"Feature: (\S+)\s+SupportedMinVersion: (\S+)\s+SupportedMaxVersion: (\S+)\s+FinalizedVersionLevel: (\S+)"
)
"""A line of ``kafka-features.sh describe``."""


class Leg(StrEnum):
    """Where a journey goes after the migration."""

    THERE = "to Kafka 4, features raised"
    BACK = "to Kafka 4, and back"

    @property
    def said(self) -> str:
        """What happens, in a sentence."""
        match self:
            case Leg.THERE:
                return f"the controllers, then the brokers, from {BRIDGE}; then each feature on its own to its newest level, `metadata.version` first, without `kraft.version`; every node restarts once more"
            case Leg.BACK:
                return f"the controllers, then the brokers, from {BRIDGE}; then, once every controller has written a snapshot, the brokers, then the controllers, back"


@dataclass(frozen=True)
class Feature:
    """A feature as ``kafka-features.sh describe`` shows it: levels are numbers, and names of versions for ``metadata.version``."""

    name: str
    newest: str
    level: str


class SnapshottingProcesses(TravellingProcesses):
    """Nodes that write a snapshot of the metadata every few seconds."""

    @override
    def _broker_properties(self, broker_id: int, mode: str) -> str:
        return _with_snapshots(super()._broker_properties(broker_id, mode))

    @override
    def _controller_properties(self, controller_id: int, mode: str) -> str:
        return _with_snapshots(super()._controller_properties(controller_id, mode))

    def snapshots(self, controller: int) -> set[str]:
        """Return the names of a controller's snapshots."""
        folder = self.directory / f"controller-{controller}" / "__cluster_metadata-0"
        return {path.name for path in folder.glob("*.checkpoint")}

    def newer_snapshots(self, controller: int, known: set[str]) -> set[str]:
        """Return those that are not known."""
        return self.snapshots(controller) - known


def _with_snapshots(properties: str) -> str:
    with Path(properties).open("a") as file:
        file.write(f"metadata.log.max.snapshot.interval.ms={_SNAPSHOT_MILLISECONDS}\n")
    return properties


class Continued(Traveller):
    """A traveller that has arrived in KRaft."""

    def roll_controllers(self, name: str, release: str) -> None:
        """Restart the controllers one at a time, the active one last, each once the quorum is whole and partitions are in sync."""
        began = time.monotonic()
        client = ControllerClient(self.processes.controller_addresses, {})
        try:
            leader = wait_for("a leader", lambda: client.quorum_state().leader_id)
            for controller in sorted(CONTROLLERS, key=lambda number: number == leader):
                self.processes.stop(f"controller-{controller}")
                self.processes.libraries_of[f"controller-{controller}"] = kafka_libraries(release)
                self.processes.start_controller(controller, FINAL)
                wait_for(f"the quorum after controller {controller} for {name}", lambda: _is_whole(client))
                wait_for(f"in sync after controller {controller} for {name}", self.processes.in_sync)
        finally:
            client.close()
        self.rolls.append(Roll(name, round(time.monotonic() - began, 1)))

    def wait_for_snapshots(self, processes: SnapshottingProcesses) -> None:
        """Wait until every controller has written another snapshot: the release that comes next must read it."""
        before = {controller: processes.snapshots(controller) for controller in CONTROLLERS}
        for controller in CONTROLLERS:
            newer = partial(processes.newer_snapshots, controller, before[controller])
            wait_for(f"a newer snapshot of controller {controller}", newer)

    def features(self, release: str) -> list[Feature]:
        """Return the features that every node supports."""
        lines = self._feature_tool(release, "describe")
        return [Feature(name, newest, level) for name, _, newest, level in _FEATURE.findall(lines)]

    def raise_features(self, release: str) -> None:
        """Raise each feature but `_APART` to the newest level that all nodes support."""
        for feature in self._behind(release):
            wanted = ("--metadata", feature.newest)
            if feature.name != _METADATA_VERSION:
                wanted = ("--feature", f"{feature.name}={feature.newest}")
            self._feature_tool(release, "upgrade", *wanted)
            self.raised.append(f"{feature.name} {feature.level} → {feature.newest}")
            wait_for(f"in sync with {feature.name} {feature.newest}", self.processes.in_sync)
        self.missing += [f"{feature.name} is still at {feature.level}" for feature in self._behind(release)]

    def _behind(self, release: str) -> list[Feature]:
        """Return the features that are not at their newest level, ``metadata.version`` first."""
        features = self.features(release)
        if _METADATA_VERSION not in {feature.name for feature in features}:
            self.missing.append(f"the tool of {release} tells no {_METADATA_VERSION}")
        behind = [feature for feature in features if feature.level != feature.newest and feature.name != _APART]
        return sorted(behind, key=lambda feature: feature.name != _METADATA_VERSION)

    def _feature_tool(self, release: str, *arguments: str) -> str:
        pom = POM.read_text().replace(
            f"kafka_2.13</artifactId><version>{KAFKA_VERSION}<", f"kafka-tools</artifactId><version>{release}<"
        )
        reached = ("--bootstrap-server", self.processes.bootstrap_servers)
        command = "org.apache.kafka.tools.FeatureCommand"
        return self.processes.tool(maven_jars("kafka-tools", release, pom), command, *reached, *arguments)


def _is_whole(client: ControllerClient) -> bool:
    """Return whether every voter has caught up."""
    lag = client.quorum_state().max_lag_records
    return lag is not None and lag < 100


def travel(release: str, leg: Leg, commit: str, evidence: Path | None = None) -> Journey:
    """Take a cluster of the bridge release to KRaft and on; return what the clients went through."""

    def go(processes: SnapshottingProcesses, zookeeper: ZooKeeperStore, load: RunningLoad) -> Traveller:
        traveller = Continued(processes, zookeeper, load)
        traveller.to_bridge(BRIDGE, lifts=True)
        through_migration(traveller, Way.KRAFT)
        processes.stop("zookeeper")
        traveller.roll_controllers(f"controllers of {release}", release)
        traveller.roll(f"brokers of {release}", KRAFT, release)
        match leg:
            case Leg.THERE:
                traveller.raise_features(release)
                traveller.roll_controllers("controllers again", release)
                traveller.roll("brokers again", KRAFT, release)
            case Leg.BACK:
                traveller.wait_for_snapshots(processes)
                traveller.roll(f"brokers of {BRIDGE}", KRAFT, BRIDGE)
                traveller.roll_controllers(f"controllers of {BRIDGE}", BRIDGE)
        time.sleep(_SETTLE_SECONDS)
        return traveller

    return undertaken(Journey(BRIDGE, Way.KRAFT, commit), SnapshottingProcesses, go, evidence)


def file_of(release: str, leg: Leg) -> str:
    """Return the name of the file that keeps a journey."""
    return f"{release}-{leg.name.lower()}.json"


def read(directory: Path = RESULTS) -> dict[tuple[str, Leg], Journey]:
    """Return the kept journeys."""
    results = [json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))]
    return {(result["release"], Leg(result["leg"])): journey_of(result["journey"]) for result in results}


def section(known: Mapping[tuple[str, Leg], Journey]) -> str:
    """Return the journeys as a part of the page."""
    parts = [
        "\n## On to Kafka 4\n",
        "`make journey-kafka4` takes clusters that were migrated by these journeys on to Kafka 4, or there and back, with the same clients at work.",
        "",
        "| Way | What happens |",
        "|---|---|",
        *(f"| {leg} | {leg.said} |" for leg in Leg),
        "",
        "| to | " + " | ".join(Leg) + " | raised |",
        "|---" * (len(Leg) + 2) + "|",
        *(_row(release, known) for release in RELEASES),
        "",
        page.summary(known),
    ]
    return "\n".join(parts) + "\n"


def _row(release: str, known: Mapping[tuple[str, Leg], Journey]) -> str:
    cells = " | ".join(page.cell(known.get((release, leg))) for leg in Leg)
    there = known.get((release, Leg.THERE))
    return f"| {release} | {cells} | {'; '.join(there.raised) if there else ''} |"


def main() -> int:
    """Make the journeys that have no result yet; return 1 if one did not end as promised."""
    parser = argparse.ArgumentParser(prog="python -m tests.journey.kafka4", description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--release", action="append", choices=RELEASES, help="only this one; may be repeated")
    parser.add_argument("--leg", action="append", type=Leg, choices=list(Leg), help="only this one; may be repeated")
    parser.add_argument("--again", action="store_true", help="also those that have a result")
    parser.add_argument("--evidence", type=Path, help="keep what processes wrote where it did not end as promised")
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    commit = present_commit()
    is_good = True
    for release in options.release or RELEASES:
        for leg in options.leg or Leg:
            path = options.results / file_of(release, leg)
            if not path.exists() or options.again:
                is_good &= _make(release, leg, commit, path, options.evidence)
    return 0 if is_good else 1


def _make(release: str, leg: Leg, commit: str, path: Path, evidence: Path | None) -> bool:
    """Make and keep one journey; return whether it ended as promised."""
    print(f"{release} {leg}: begins", flush=True)
    kept_at = evidence / path.stem if evidence else None
    journey = attempted(Journey(BRIDGE, Way.KRAFT, commit), partial(travel, release, leg, commit, kept_at))
    result = {"release": release, "leg": str(leg), "journey": journey.as_json()}
    path.write_text(json.dumps(result, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    print(f"{release} {leg}: {'as promised' if journey.good else 'NOT as promised'}; {journey}", flush=True)
    return journey.good


if __name__ == "__main__":
    sys.exit(main())
