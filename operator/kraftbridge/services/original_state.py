"""The original state of the user's StatefulSets: the input of overlays, and what a rollback restores.

`original_secrets` keeps it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from kraftbridge.builders import bitnami
from kraftbridge.builders.broker_overlays import (
    INHERITED_OPTIONS,
    ISSUED_VOLUME,
    BrokerFacts,
    NewImage,
    Upgrade,
    environment,
    overlaid_variable,
    setting_of,
)
from kraftbridge.builders.template import ContainerEnvironment, container_environment, overrides_of
from kraftbridge.constants import ANNOTATION_CONFIGURATION, FIELD_MANAGER, OVERLAID_SETTINGS
from kraftbridge.models.mounted_files import FilesKind, MountedFiles, mounted_object
from kraftbridge.models.objects import entries, section, variables_of
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.protocol import BRIDGE
from kraftbridge.models.protocol import SETTING as PROTOCOL
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import UPDATE_STRATEGY, ChangedField, MigrationStatus
from kraftbridge.outside.properties import parse_properties
from kraftbridge.services import ownership
from kraftbridge.services.observe.workloads import container_of, environment_of
from kraftbridge.storage.ports import ReadPort


@dataclass(frozen=True, slots=True)
class OriginalState:
    """The fields of a user's StatefulSet that are the input of overlays and that a rollback restores."""

    container: Mapping[str, Any]
    volumes: tuple[Mapping[str, Any], ...]
    update_strategy: Mapping[str, Any]
    managed_fields: tuple[Mapping[str, Any], ...]
    properties_text: str
    files: MountedFiles | None = None
    """What the volume of the properties file mounted."""
    environment: ContainerEnvironment = field(default_factory=ContainerEnvironment)
    """Variables of the Kafka container with the values behind their references."""
    init_containers: tuple[str, ...] = ()
    """Init containers that have the image of the Kafka container."""

    @property
    def java_tool_options(self) -> str:
        """``JAVA_TOOL_OPTIONS`` of the Kafka container.

        A value from ``envFrom`` stays a reference: the kubelet expands it (``makeEnvironmentVariables``),
        and no Secret's value gets into a template.
        """
        if "JAVA_TOOL_OPTIONS" in self.environment.inherited:
            return INHERITED_OPTIONS
        return environment_of(self.container).get("JAVA_TOOL_OPTIONS", "")

    @property
    def overrides(self) -> Mapping[str, str]:
        """Settings that ``--override`` gives."""
        return overrides_of(self.container)


def upgrade_of(spec: MigrationSpec, status: MigrationStatus, original: OriginalState) -> Upgrade | None:
    """Return what brings brokers to the release that spec asks for, None where they keep their image."""
    asked = spec.brokers.upgrade
    found = status.broker_upgrade
    if asked is None or found is None or not found.needed:
        return None
    return Upgrade(asked.image, asked.env, found.protocol, original.init_containers, found.lifts_alone)


def kafka4_of(status: MigrationStatus, original: OriginalState) -> NewImage | None:
    """Return what brings brokers to Kafka 4, None where that is not prepared."""
    leg = status.kafka4_leg
    return None if leg is None else NewImage(leg.image, original.init_containers)


def restored_state(spec: MigrationSpec, status: MigrationStatus, original: OriginalState) -> OriginalState:
    """Return what a rollback restores: the user's own state, once a broker may have run 3.9's protocol with the image.

    A broker that has run it cannot run an older release again, and the protocol that ran before never comes back
    (Kafka's manual, "Upgrading"). In ``Properties`` style the file sets no protocol, so 3.9 runs by its default:
    preflight blocks where it does.
    """
    upgrade = upgrade_of(spec, status, original)
    if upgrade is None or status.broker_upgrade is None or status.broker_upgrade.lifted_at is None:
        return original
    variables = dict(upgrade.env)
    values = dict(original.environment.values)
    if spec.brokers.file is None:
        variables[overlaid_variable(PROTOCOL, spec.brokers.env_prefix, values)] = str(BRIDGE)
        values |= {name: str(BRIDGE) for name in variables.keys() - upgrade.env.keys()}
    variables.pop("JAVA_TOOL_OPTIONS", None)
    entries_of = {name: dict(entry) for name, entry in variables_of(original.container).items()}
    entries_of |= {name: {"name": name, "value": value} for name, value in variables.items()}
    container = {**original.container, "image": upgrade.image, "env": list(entries_of.values())}
    environment = replace(original.environment, values=values)
    return replace(original, container=container, environment=environment)


def overlay_of(stateful_set: Mapping[str, Any]) -> str:
    """Return what shows that a pod template carries an overlay of the operator, ``""`` if nothing does.

    The annotation can be removed by hand, and a Helm 3 upgrade keeps entries that neither of its manifests names.
    Their owner stays the operator in ``managedFields`` until another writer owns them.
    """
    template = stateful_set["spec"]["template"]
    mark = section(template, "metadata", "annotations").get(ANNOTATION_CONFIGURATION, "")
    if mark:
        return f"annotation {ANNOTATION_CONFIGURATION}: {mark}"
    for entry in entries(stateful_set, "metadata", "managedFields"):
        if entry.get("manager") == FIELD_MANAGER and "f:template" in section(entry, "fieldsV1", "f:spec"):
            return f"fields of manager {FIELD_MANAGER} in managedFields"
    return ""


def capture(
    spec: MigrationSpec,
    stateful_set: Mapping[str, Any],
    files: MountedFiles | None,
    environment: ContainerEnvironment | None = None,
) -> OriginalState | None:
    """Return a StatefulSet's current state; None without the Kafka container, or with an overlay (not the user's)."""
    container = container_of(stateful_set, spec.brokers.container)
    if container is None or overlay_of(stateful_set):
        return None
    source = spec.brokers.properties
    properties_text = ""
    if files is not None and source is not None:
        properties_text = files.text(source.key)
    return OriginalState(
        container={
            "name": container["name"],
            "env": container.get("env", []),
            "image": container.get("image", ""),
            **{k: container[k] for k in ("command", "args") if k in container},
        },
        volumes=tuple(stateful_set["spec"]["template"]["spec"].get("volumes", [])),
        update_strategy=stateful_set["spec"].get("updateStrategy", {}),
        managed_fields=tuple(stateful_set["metadata"].get("managedFields", [])),
        properties_text=properties_text,
        files=files,
        environment=environment or plain_environment(container),
        init_containers=_with_same_image(stateful_set, container),
    )


def _with_same_image(stateful_set: Mapping[str, Any], container: Mapping[str, Any]) -> tuple[str, ...]:
    starters = entries(stateful_set, "spec", "template", "spec", "initContainers")
    return tuple(starter["name"] for starter in starters if starter.get("image") == container.get("image"))


def mounted_files(
    kubernetes: ReadPort, namespace: str, spec: MigrationSpec, stateful_set: Mapping[str, Any]
) -> MountedFiles | None:
    """Return what the volume of the properties file mounts in this StatefulSet.

    There are no keys if the object does not exist.

    Returns
    -------
    MountedFiles or None
        None in ``Env`` style, and if the volume mounts neither a ConfigMap nor a Secret.
    """
    source = spec.brokers.file
    if source is None:
        return None
    mounted = mounted_object(entries(stateful_set, "spec", "template", "spec", "volumes"), source.volume)
    if mounted is None:
        return None
    kind, name = mounted
    return _read(kubernetes, namespace, kind, name) or MountedFiles(kind, name)


def environment_values(
    kubernetes: ReadPort, namespace: str, spec: MigrationSpec, stateful_set: Mapping[str, Any]
) -> ContainerEnvironment:
    """Return the environment of the Kafka container, with the values of its ConfigMaps and Secrets."""
    container = section(container_of(stateful_set, spec.brokers.container))
    return container_environment(container, namespace, partial(_read, kubernetes, namespace))


def _read(kubernetes: ReadPort, namespace: str, kind: FilesKind, name: str) -> MountedFiles | None:
    obj = kubernetes.get("v1", str(kind), namespace, name)
    if obj is None:
        return None
    return MountedFiles(kind, name, dict(section(obj, "data")), dict(section(obj, "binaryData")))


def settings_of(spec: MigrationSpec, original: OriginalState) -> tuple[dict[str, str], frozenset[str]]:
    """Return the Kafka settings that a template gives, and the names of those whose values cannot be read.

    An ``--override`` wins over the properties file; images write their variables into such a file.
    """
    overrides = original.overrides
    expanded = frozenset(name for name, value in overrides.items() if "$" in value)
    if spec.brokers.file is not None:
        return {**parse_properties(original.properties_text), **overrides}, expanded
    variables = original.environment
    settings = {name: variables.values[v] for v, name in _settings_in(variables.values, spec.brokers.env_prefix)}
    unknown = {name for _, name in _settings_in(variables.unknown, spec.brokers.env_prefix)}
    return {**settings, **overrides}, frozenset(unknown - overrides.keys()) | expanded


def _settings_in(variables: Collection[str], prefix: str) -> Iterator[tuple[str, str]]:
    """Yield each variable that gives a setting, with the setting. Bitnami's aliases come last, because they win."""
    for variable in variables:
        name = setting_of(variable, prefix)
        if name is not None:
            yield variable, name
    if prefix == bitnami.PREFIX:
        yield from ((variable, bitnami.ALIASES[variable]) for variable in variables if variable in bitnami.ALIASES)


def variables_of_modes(spec: MigrationSpec, facts: BrokerFacts) -> set[str]:
    """Return the variables that the overlays of all modes set."""
    return {name for mode in modes_of(facts) for name in environment(spec, facts, mode)}


def modes_of(facts: BrokerFacts) -> tuple[BrokerMode, ...]:
    """Return the modes to which an overlay brings brokers, in their order."""
    others: tuple[BrokerMode, ...] = (BrokerMode.MIGRATION, BrokerMode.KRAFT)
    if facts.kafka4 is not None:
        others = (*others, BrokerMode.KAFKA4)
    if facts.upgrade is None:
        return others
    lifted = (BrokerMode.LIFTED,) if facts.upgrade.lifts_alone else ()
    return (BrokerMode.UPGRADED, *lifted, *others)


def fixed_variables(spec: MigrationSpec, original: OriginalState, facts: BrokerFacts) -> dict[str, str]:
    """Return the variables that the migration sets and the template refers to, each with the line to replace it."""
    set_by_us = variables_of_modes(spec, facts)
    if spec.brokers.file is None:
        set_by_us |= {overlaid_variable(s, spec.brokers.env_prefix, facts.given) for s in OVERLAID_SETTINGS}
    return {name: _line(original.environment, name) for name in sorted(original.environment.references & set_by_us)}


def _line(variables: ContainerEnvironment, name: str) -> str:
    if name in variables.secret:
        return "value: (the value in the Secret)"
    if name in variables.values:
        return f"value: {json.dumps(variables.values[name])}"
    return "value: (its value)"


def plain_environment(container: Mapping[str, Any]) -> ContainerEnvironment:
    """Return what an earlier release of the operator knew: plain values as they are written.

    The overlay of a running migration must not change.
    """
    references = frozenset(name for name, entry in variables_of(container).items() if "valueFrom" in entry)
    return ContainerEnvironment(environment_of(container), unknown=references, references=references)


def restoring_patches(
    spec: MigrationSpec, original: OriginalState, facts: BrokerFacts, mode: BrokerMode = BrokerMode.ZOOKEEPER
) -> list[tuple[str, dict[str, Any]]]:
    """Return strategic merge patches that restore overwritten values, each with the values' field manager.

    Parameters
    ----------
    mode
        Mode whose overlay is applied next; what it sets is not restored.
        In ZooKeeper mode nothing is set, and everything is restored.

    Notes
    -----
    Measured: after a server-side apply without a forced ``env`` entry, the entry stays without a value.
    For the authorizer, this means no authorizer.
    Writing the original value first, as its owner's field manager, restores ``managedFields`` and ``env``.
    """
    present = variables_of(original.container)
    # Without this directive of a strategic merge patch, the restored entries change places,
    # and the order of entries is part of the template.
    order = {"$setElementOrder/env": [{"name": name} for name in present]}
    ours = variables_of_modes(spec, facts)
    if mode is not BrokerMode.ZOOKEEPER:
        ours -= environment(spec, facts, mode).keys()
    by_manager: dict[str, dict[str, Any]] = {}
    for name in [variable for variable in present if variable in ours]:
        manager = _owner(
            original.managed_fields,
            "f:containers",
            f'k:{{"name":"{original.container["name"]}"}}',
            "f:env",
            f'k:{{"name":"{name}"}}',
        )
        container = {"name": original.container["name"], **order, "env": []}
        by_manager.setdefault(manager, {"containers": [container]})["containers"][0]["env"].append(present[name])
    if facts.image_in(mode) is None or mode is BrokerMode.ZOOKEEPER:
        for kind, name in _with_image(original, facts):
            manager = _owner(original.managed_fields, f"f:{kind}", f'k:{{"name":"{name}"}}', "f:image")
            listed = by_manager.setdefault(manager, {}).setdefault(kind, [])
            entry = next((each for each in listed if each["name"] == name), None)
            if entry is None:
                listed.append(entry := {"name": name})
            entry["image"] = original.container["image"]
    source = spec.brokers.file
    if source is not None and mode is BrokerMode.ZOOKEEPER:
        for volume in [v for v in original.volumes if v["name"] == source.volume][:1]:
            manager = _owner(original.managed_fields, "f:volumes", f'k:{{"name":"{source.volume}"}}')
            by_manager.setdefault(manager, {})["volumes"] = [volume]
    return [(manager, {"spec": {"template": {"spec": pod}}}) for manager, pod in by_manager.items()]


def _with_image(original: OriginalState, facts: BrokerFacts) -> list[tuple[str, str]]:
    """Return the containers whose image the overlays change, each with the list that it stands in."""
    if facts.upgrade is None and facts.kafka4 is None:
        return []
    return [("containers", original.container["name"]), *(("initContainers", n) for n in original.init_containers)]


def overwritten_paths(spec: MigrationSpec, original: OriginalState, facts: BrokerFacts) -> list[ownership.Path]:
    """Return the fields of the owner's template that a migration overwrites, as ``managedFields`` spells them."""
    pod = ("f:spec", "f:template", "f:spec")
    container = (*pod, "f:containers", f'k:{{"name":"{original.container["name"]}"}}', "f:env")
    ours = variables_of_modes(spec, facts)
    present = variables_of(original.container)
    paths: list[ownership.Path] = [(*container, f'k:{{"name":"{name}"}}') for name in present if name in ours]
    paths += [(*pod, f"f:{kind}", f'k:{{"name":"{name}"}}', "f:image") for kind, name in _with_image(original, facts)]
    source = spec.brokers.file
    if source is not None:
        paths.append((*pod, "f:volumes", f'k:{{"name":"{source.volume}"}}'))
    return paths


def changed_fields(
    spec: MigrationSpec, name: str, original: OriginalState, facts: BrokerFacts
) -> tuple[ChangedField, ...]:
    """Return the original value, never a secret one, and owner of each field that a migration sets in a StatefulSet."""
    present = {name: e.get("value", "(a reference)") for name, e in variables_of(original.container).items()}
    container = f'k:{{"name":"{original.container["name"]}"}}'

    def owner_of(variable: str) -> str:
        if variable not in present:
            return ""
        return _owner(original.managed_fields, "f:containers", container, "f:env", f'k:{{"name":"{variable}"}}')

    fields = [
        ChangedField(
            object=f"StatefulSet/{name}",
            field=f"env {variable}",
            before=present.get(variable, "(not set)"),
            owner=owner_of(variable),
        )
        for variable in sorted(variables_of_modes(spec, facts))
    ]
    fields += [
        ChangedField(
            object=f"StatefulSet/{name}",
            field=f"image of {container_name}",
            before=str(original.container["image"]),
            owner=_owner(original.managed_fields, f"f:{kind}", f'k:{{"name":"{container_name}"}}', "f:image"),
        )
        for kind, container_name in _with_image(original, facts)
    ]
    source = spec.brokers.file
    if source is not None:
        owner = _owner(original.managed_fields, "f:volumes", f'k:{{"name":"{source.volume}"}}')
        mounted = mounted_object(original.volumes, source.volume)
        before = "" if mounted is None else mounted[1]
        fields.append(
            ChangedField(object=f"StatefulSet/{name}", field=f"volume {source.volume}", before=before, owner=owner)
        )
    if facts.issued_secret:
        field_name = f"volume {ISSUED_VOLUME}"
        fields.append(ChangedField(object=f"StatefulSet/{name}", field=field_name, before="(not set)", owner=""))
    strategy = str(original.update_strategy.get("type", ""))
    return (*fields, ChangedField(object=f"StatefulSet/{name}", field=UPDATE_STRATEGY, before=strategy, owner=""))


def _owner(managed_fields: tuple[Mapping[str, Any], ...], *path: str) -> str:
    """Return the field manager of a field of the pod template; Kubernetes' default name if no owner is recorded."""
    for entry in managed_fields:
        node = ownership.node_at(entry.get("fieldsV1"), ("f:spec", "f:template", "f:spec", *path))
        if node is not None and entry.get("subresource", "") == "":
            return str(entry.get("manager", "unknown"))
    return "unknown"
