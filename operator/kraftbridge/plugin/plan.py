"""Shows the changes of a migration in the user's StatefulSets as a diff, without making them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import yaml

from kraftbridge.builders import broker_overlays as brokers
from kraftbridge.config import Settings
from kraftbridge.constants import ANNOTATION_CONFIGURATION, DEFAULT_CLUSTER_DOMAIN
from kraftbridge.models.objects import entries
from kraftbridge.models.protocol import BRIDGE
from kraftbridge.models.protocol import SETTING as PROTOCOL
from kraftbridge.models.redaction import Redactor
from kraftbridge.models.spec import ConfigStyle, MigrationSpec
from kraftbridge.models.status import BrokerUpgradeStatus, ChannelStatus, MigrationStatus, with_channel
from kraftbridge.phases.draft import Identity, Migration
from kraftbridge.plugin.redaction import without_unknown_settings
from kraftbridge.plugin.session import PluginError, ReadMigration
from kraftbridge.services.dry_start_inputs import channels_of
from kraftbridge.services.facts import Facts
from kraftbridge.services.original_state import OriginalState, modes_of
from kraftbridge.storage.ports import KubernetesPort

Object = dict[str, Any]
CLUSTER_ID_OPEN = "<cluster id, read from ZooKeeper in preflight>"
"""What a diff shows in place of the cluster id while the operator does not know it."""
PROTOCOL_OPEN = "<the lowest that runs, found in preflight>"
"""The same of the protocol that the brokers keep until they run migration mode."""


def plan(kubernetes: KubernetesPort, migration: ReadMigration, redactor: Redactor) -> Iterator[str]:
    """Yield the lines of the diffs: each StatefulSet from its own configuration to migration mode, and on to KRaft.

    The first line names the channel, and the next ones the rolling restarts as preflight has planned them.
    The overlays are those of the operator.
    The cluster id is `CLUSTER_ID_OPEN` until the operator has read it from ZooKeeper.

    Raises
    ------
    PluginError
        A StatefulSet does not exist, or lacks the Kafka container.
    """
    metadata = migration.resource["metadata"]
    facts = Facts(kubernetes, Settings(operator_image="unused"))
    status = migration.status
    for reference in migration.spec.brokers.stateful_sets:
        _stateful_set(kubernetes, migration.namespace, reference.name)
    if migration.spec.brokers.config_style is ConfigStyle.AUTO and status.channel is None:
        likely = channels_of(kubernetes, migration.namespace, migration.spec)[0]
        status = status.model_copy(update={"channel": ChannelStatus.of(likely)})
    if migration.spec.brokers.upgrade is not None and status.broker_upgrade is None:
        status = status.model_copy(update={"broker_upgrade": BrokerUpgradeStatus(needed=True, protocol=PROTOCOL_OPEN)})
    spec = with_channel(migration.spec, status)
    yield f"Channel: {channel_line(migration.spec, status)}"
    yield from roll_lines(status)
    domain = status.cluster_domain or DEFAULT_CLUSTER_DOMAIN
    identity = Identity(
        migration.namespace, migration.name, metadata["uid"], metadata.get("generation", 0), cluster_domain=domain
    )
    planned = Migration(identity, spec, status)
    for reference in spec.brokers.stateful_sets:
        stateful_set = _stateful_set(kubernetes, migration.namespace, reference.name)
        original = facts.original(planned, stateful_set)
        if original is None:
            raise PluginError(
                f"StatefulSet {reference.name} has no container {spec.brokers.container} (set "
                "spec.brokers.container), or its template carries the overlay of a migration whose original "
                "state is not recorded"
            )
        broker_facts = facts.brokers(planned, original)
        if not broker_facts.cluster_id:
            broker_facts = replace(broker_facts, cluster_id=CLUSTER_ID_OPEN)
        own = {**stateful_set, "spec": _with_original(stateful_set["spec"], original)}
        before = _template(own, redactor)
        before_file = without_unknown_settings(original.properties_text, redactor)
        last = "yours"
        for mode in modes_of(broker_facts):
            overlay = brokers.overlay(spec, broker_facts, reference.name, mode)
            # Each mode's overlay applies to the user's own template: entries of the earlier mode disappear.
            after = _template(with_overlay(own, overlay), redactor)
            yield from _diff(f"StatefulSet {reference.name}", last, str(mode), before, after, redactor)
            properties = brokers.properties_object(spec, broker_facts, migration.name, mode)
            if properties is not None:
                text = without_unknown_settings(brokers.properties_file(spec, broker_facts, mode), redactor)
                name = f"{properties['kind']} {properties['metadata']['name']} (new)"
                yield from _diff(name, last, str(mode), before_file, text, redactor)
                before_file = text
            before = after
            last = str(mode)
        if broker_facts.upgrade is not None:
            yield f"StatefulSet {reference.name}: {_upgrade_line(broker_facts.upgrade)}"
        yield (
            f"StatefulSet {reference.name}: updateStrategy "
            f"{stateful_set['spec'].get('updateStrategy', {}).get('type', 'RollingUpdate')} -> OnDelete while "
            "the migration runs"
        )


def _upgrade_line(upgrade: brokers.Upgrade) -> str:
    """Return how often the brokers restart for the release, and from when on a rollback keeps it."""
    word = "once spec.rollback.giveUpFormerImage is true, and from then on a rollback keeps both"
    if upgrade.lifts_alone:
        return (
            f"the brokers restart twice on ZooKeeper: with {upgrade.image}, and then with {PROTOCOL} {BRIDGE}, "
            f"because topics have no ids with {upgrade.protocol}. The second begins {word}"
        )
    twice = ""
    if upgrade.protocol == PROTOCOL_OPEN:
        twice = ". If the lowest is below 2.8, they restart a second time for that, before migration mode"
    return (
        f"the brokers restart once with {upgrade.image}, on ZooKeeper. "
        f"Migration mode lifts {PROTOCOL} to {BRIDGE} {word}{twice}"
    )


def _stateful_set(kubernetes: KubernetesPort, namespace: str, name: str) -> Object:
    stateful_set = kubernetes.get("apps/v1", "StatefulSet", namespace, name)
    if stateful_set is None:
        raise PluginError(f"StatefulSet {namespace}/{name} does not exist")
    return stateful_set


def channel_line(spec: MigrationSpec, status: MigrationStatus) -> str:
    """Return the channel by which the migration changes the brokers' settings, and what proved it."""
    channel = ChannelStatus.of(with_channel(spec, status).brokers)
    proven = status.channel
    if proven is not None and str(proven) == str(channel) and proven.proven_at is not None:
        return f"{channel} (proven at {proven.proven_at:%Y-%m-%d %H:%M:%S} UTC by {proven.proven_by})"
    if spec.brokers.config_style is ConfigStyle.AUTO:
        return f"{channel} (not proven: the dry start of preflight decides)"
    return f"{channel} (as spec.brokers says; no dry start has proven it)"


def roll_lines(status: MigrationStatus) -> tuple[str, ...]:
    """Return the rolling restarts that preflight has planned."""
    if status.roll_plan is None:
        return ("Rolling restarts: not known until preflight has seen the brokers",)
    return status.roll_plan.lines


def with_overlay(stateful_set: Mapping[str, Any], overlay: Mapping[str, Any]) -> Object:
    """Return a StatefulSet after server-side apply of an overlay: annotations merge by key, env and volumes by name."""
    result = deepcopy(dict(stateful_set))
    template = result["spec"]["template"]
    pod = template["spec"]
    added = overlay["spec"]["template"]
    annotations = template.setdefault("metadata", {}).setdefault("annotations", {})
    annotations.update(added["metadata"]["annotations"])
    containers = {container["name"]: container for container in pod["containers"]}
    for container in added["spec"]["containers"]:
        own = containers[container["name"]]
        own["env"] = _merged_by_name(own.get("env", []), container.get("env", []))
        if "image" in container:
            own["image"] = container["image"]
    starters = {starter["name"]: starter for starter in entries(pod, "initContainers")}
    for starter in entries(added, "spec", "initContainers"):
        starters[starter["name"]]["image"] = starter["image"]
    if "volumes" in added["spec"]:
        pod["volumes"] = brokers.with_volumes(pod.get("volumes", []), added["spec"]["volumes"])
    return result


def _merged_by_name(own: list[Object], wanted: list[Object]) -> list[Object]:
    """Return the entries of both; one that is wanted takes the place of every entry of its name."""
    ours = {entry["name"]: entry for entry in wanted}
    merged: dict[object, Object] = {}
    for position, entry in enumerate(own):
        name = entry["name"]
        key = name if name in ours else (name, position)
        merged[key] = {**entry, **ours.get(name, {})}
    for name, entry in ours.items():
        merged.setdefault(name, entry)
    return list(merged.values())


def _with_original(spec: Mapping[str, Any], original: OriginalState) -> Object:
    """Return a StatefulSet's spec with the user's own image, environment and volumes, which an overlay may replace."""
    container = original.container
    volumes = original.volumes
    result = deepcopy(dict(spec))
    pod = result["template"]["spec"]
    for own in pod["containers"]:
        if own["name"] == container["name"]:
            own["env"] = list(map(dict, container.get("env", [])))
    for own in (*pod["containers"], *entries(pod, "initContainers")):
        if own["name"] in (container["name"], *original.init_containers) and container.get("image"):
            own["image"] = container["image"]
    if volumes:
        pod["volumes"] = list(map(dict, volumes))
    annotations = result["template"].get("metadata", {}).get("annotations", {})
    annotations.pop(ANNOTATION_CONFIGURATION, None)
    return result


def _template(stateful_set: Mapping[str, Any], redactor: Redactor) -> str:
    template = without_unknown_settings(stateful_set["spec"]["template"], redactor)
    return yaml.safe_dump(template, sort_keys=True, width=200)


def _diff(title: str, was: str, becomes: str, before: str, after: str, redactor: Redactor) -> Iterator[str]:
    lines = difflib.unified_diff(
        redactor.redact(before).splitlines(),
        redactor.redact(after).splitlines(),
        f"{title}: {was}",
        f"{title}: {becomes}",
        n=1,
        lineterm="",
    )
    yield from lines
