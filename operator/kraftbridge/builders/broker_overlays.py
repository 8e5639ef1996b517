"""Renders a mode of the brokers as an overlay on the user's StatefulSet. Pure.

It converts Kafka settings to variables and properties.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import javaproperties

from kraftbridge.builders import bitnami, names
from kraftbridge.constants import (
    ACL_AUTHORIZER,
    ANNOTATION_CONFIGURATION,
    CONTROLLER_LISTENER,
    CONTROLLER_LISTENER_PREFIX,
    CONTROLLER_PORT,
    FORBID_PEM_FILES,
    STANDARD_AUTHORIZER,
)
from kraftbridge.models.broker_settings import variable_of
from kraftbridge.models.mounted_files import FilesKind, MountedFiles
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.protocol import BRIDGE
from kraftbridge.models.protocol import SETTING as PROTOCOL
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.outside.properties import without_settings
from kraftbridge.pods.credentials import AUTHORITIES, KEYSTORE

NOT_SETTINGS = frozenset(
    {
        "KAFKA_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_JMX_OPTS",
        "KAFKA_VERSION",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS",
    }
)
"""Variables with the prefix that images do not turn into settings (``kafka.docker.KafkaDockerWrapper``)."""


def setting_of(variable: str, prefix: str) -> str | None:
    """Return the setting of an environment variable, None if the variable is not a setting."""
    if not variable.startswith(prefix) or variable in NOT_SETTINGS or variable.startswith("KAFKA_LOG4J"):
        return None
    name = variable[len(prefix) :].lower()
    return name.replace("___", "\0").replace("__", "\1").replace("_", ".").replace("\0", "-").replace("\1", "_")


def render_properties(settings: Mapping[str, str]) -> str:
    """Return a properties file; characters that end a line or a key are escaped."""
    return "".join(javaproperties.join_key_value(k, v) + "\n" for k, v in sorted(settings.items()))


def with_listener(protocol_map: str | None, listener: str, protocol: str) -> str:
    """Return ``listener.security.protocol.map`` with one more listener; Kafka's own default map where none is set."""
    entries = [entry.strip() for entry in (protocol_map or "").split(",") if entry.strip()]
    if not entries:
        entries = ["PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"]
    kept = [entry for entry in entries if entry.partition(":")[0].upper() != listener]
    return ",".join([f"{listener}:{protocol}", *kept])


def short_hash(parts: Iterable[Any]) -> str:
    """Return a short, stable hash of JSON-like values."""
    return hashlib.sha256(json.dumps(list(parts), sort_keys=True, default=str).encode()).hexdigest()[:10]


SHORT_ADDRESS_CACHE = "-Dsun.net.inetaddr.ttl=1 -Dsun.net.inetaddr.negative.ttl=0"
"""JVMs cache addresses for 30 s and failures for 10 s; pod addresses change at every restart.

``networkaddress.cache.ttl`` is a security property that ``-D`` does not set;
these legacy system properties are read when it is not set (``sun.net.InetAddressCachePolicy``).
"""
INHERITED_OPTIONS = "$(JAVA_TOOL_OPTIONS)"
"""In an entry of ``env``: the value that ``envFrom`` gives."""
ISSUED_VOLUME = "kraftbridge-listener"
"""Volume with the certificate that the operator issues for the brokers."""
ISSUED_DIRECTORY = "/etc/kraftbridge-listener"
_ISSUED_SETTINGS: Mapping[str, str] = {
    f"{CONTROLLER_LISTENER_PREFIX}ssl.keystore.type": "PEM",
    f"{CONTROLLER_LISTENER_PREFIX}ssl.keystore.location": f"{ISSUED_DIRECTORY}/{KEYSTORE}",
    f"{CONTROLLER_LISTENER_PREFIX}ssl.truststore.type": "PEM",
    f"{CONTROLLER_LISTENER_PREFIX}ssl.truststore.location": f"{ISSUED_DIRECTORY}/{AUTHORITIES}",
}
FIRST_PASS_DELAY = "log.initial.task.delay.ms"  # noqa: S105 - the name of a setting
FIRST_PASS_MILLISECONDS = 15 * 60 * 1000
"""Kafka's default is 30 seconds."""
REMOVED_IN_KRAFT = ("zookeeper.metadata.migration.enable",)


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The release to which brokers are brought, and what they keep of the former one until they leave it."""

    image: str
    env: Mapping[str, str]
    """Variables that the image needs."""
    protocol: str
    """``inter.broker.protocol.version`` that the brokers keep on ZooKeeper, as it runs."""
    init_containers: tuple[str, ...] = ()
    """Init containers that have the image of the Kafka container."""
    lifts_alone: bool = False
    """Whether this protocol is lifted in a rolling restart of its own, before migration mode."""


@dataclass(frozen=True, slots=True)
class NewImage:
    """An image to which brokers are brought."""

    image: str
    init_containers: tuple[str, ...] = ()
    """Init containers that get it, too."""


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """Inputs of an overlay: the user's original values."""

    namespace: str
    controllers: str
    cluster_domain: str
    cluster_id: str
    settings: Mapping[str, str]
    java_tool_options: str
    properties_text: str = ""
    variables: tuple[str, ...] = ()
    """Variables of the Kafka container in the order of the user's template."""
    inherited: frozenset[str] = frozenset()
    """Variables that ``envFrom`` gives."""
    zookeeper_writers: tuple[str, ...] = ()
    """Variables with which the image writes to ZooKeeper at each start."""
    issued_secret: str = ""
    """Secret with the brokers' certificate for the controllers' listener that the overlay mounts;
    ``""`` where the brokers have one of their own."""
    files: MountedFiles | None = None
    """What the volume of the properties file mounts;
    None in ``Env`` style, and where an earlier release of the operator recorded the original state."""
    upgrade: Upgrade | None = None
    """None where the brokers keep their image."""
    kafka4: NewImage | None = None
    """Image of mode ``KAFKA4``; None before the way on to Kafka 4 is prepared."""

    def image_in(self, mode: BrokerMode) -> NewImage | None:
        """Return the image that the overlay of a mode sets, None where it sets none."""
        if mode is BrokerMode.KAFKA4:
            return self.kafka4
        if self.upgrade is None:
            return None
        return NewImage(self.upgrade.image, self.upgrade.init_containers)

    @property
    def given(self) -> frozenset[str]:
        """Names of the Kafka container's variables."""
        return self.inherited.union(self.variables)


def quorum_voters(
    spec: MigrationSpec, controllers: str, namespace: str, cluster_domain: str, port: int = CONTROLLER_PORT
) -> str:
    """Return ``controller.quorum.voters``."""
    hosts = names.controller_hosts(controllers, namespace, spec.controllers.node_ids, cluster_domain)
    return ",".join(f"{i}@{host}:{port}" for i, host in hosts.items())


def broker_settings(spec: MigrationSpec, facts: BrokerFacts, mode: BrokerMode) -> dict[str, str]:
    """Return the settings that a mode adds to or changes in the user's.

    Parameters
    ----------
    spec
        The migration's spec.
    facts
        The user's own settings and the quorum's coordinates.
    mode
        ``UPGRADED``, ``LIFTED``, ``MIGRATION``, ``KRAFT`` or ``KAFKA4``, which sets the same as ``KRAFT``;
        ``ZOOKEEPER`` asks for nothing.

    Notes
    -----
    KIP-866 and "ZooKeeper to KRaft Migration" of Kafka's operations manual: migration mode needs the flag,
    the voters and the controllers' listener name; a KRaft broker needs ``process.roles`` and must not have the flag.
    ``broker.id`` and ``zookeeper.connect`` may stay.

    Until the last broker of the former release has gone, nobody may speak a newer protocol than the oldest one knows
    (Kafka's manual, "Upgrading"): a leader of 2.8 refuses Fetch v17.
    A KRaft broker ignores the protocol, and refuses one below 3.0 (``KafkaConfig``).
    """
    if mode is BrokerMode.ZOOKEEPER:
        return {}
    if mode is BrokerMode.UPGRADED:
        return {} if facts.upgrade is None else {PROTOCOL: facts.upgrade.protocol}
    if mode is BrokerMode.LIFTED:
        return {} if facts.upgrade is None else {PROTOCOL: str(BRIDGE)}
    protocol = spec.controllers.listener.security_protocol
    settings = {
        "controller.listener.names": CONTROLLER_LISTENER,
        "controller.quorum.voters": quorum_voters(spec, facts.controllers, facts.namespace, facts.cluster_domain),
        "listener.security.protocol.map": with_listener(
            facts.settings.get("listener.security.protocol.map"), CONTROLLER_LISTENER, protocol
        ),
    }
    settings |= spec.brokers.static_settings
    if facts.upgrade is not None and (mode is BrokerMode.MIGRATION or spec.brokers.file is None):
        settings[PROTOCOL] = str(BRIDGE)
    if facts.issued_secret:
        settings |= _ISSUED_SETTINGS
    if mode is BrokerMode.MIGRATION:
        settings["zookeeper.metadata.migration.enable"] = "true"
        return settings
    settings["process.roles"] = "broker"
    # No retention pass before the broker is compared with what it was:
    # the settings in force may be other ones (LogManager.startupWithConfigOverrides).
    settings[FIRST_PASS_DELAY] = str(FIRST_PASS_MILLISECONDS)
    if facts.settings.get("authorizer.class.name", "").strip() == ACL_AUTHORIZER:
        settings["authorizer.class.name"] = STANDARD_AUTHORIZER
    return settings


def overlaid_settings(spec: MigrationSpec, facts: BrokerFacts, mode: BrokerMode) -> dict[str, str]:
    """Return every setting that an overlay gives to Kafka: those of the mode and of the new image's variables."""
    settings: dict[str, str] = {}
    if facts.upgrade is not None and mode is not BrokerMode.ZOOKEEPER and spec.brokers.file is None:
        named = (
            (setting_of(variable, spec.brokers.env_prefix), value) for variable, value in facts.upgrade.env.items()
        )
        settings = {name: value for name, value in named if name is not None}
    return settings | broker_settings(spec, facts, mode)


def takes_issued_certificate(spec: MigrationSpec, names_of_settings: Collection[str]) -> bool:
    """Return whether the overlay gives the brokers a certificate that the operator issues for this listener.

    Parameters
    ----------
    names_of_settings
        The brokers' own settings.
        Where one of them is for this listener, or one that the listener inherits forbids PEM files,
        the user mounts the Secret.
    """
    listener = spec.controllers.listener
    if not listener.generate or listener.security_protocol != "SSL":
        return False
    own = any(name.startswith(f"{CONTROLLER_LISTENER_PREFIX}ssl.") for name in names_of_settings)
    return not own and not FORBID_PEM_FILES & set(names_of_settings)


def java_tool_options(present: str) -> str:
    """Return ``JAVA_TOOL_OPTIONS`` with short address caches appended."""
    if SHORT_ADDRESS_CACHE in present:
        return present
    return f"{present} {SHORT_ADDRESS_CACHE}".strip()


def configuration(spec: MigrationSpec, facts: BrokerFacts, mode: BrokerMode) -> str:
    """Return the value of the configuration annotation: the mode and a hash of all that the overlay sets."""
    parts: list[object] = [
        broker_settings(spec, facts, mode),
        java_tool_options(facts.java_tool_options),
        facts.cluster_id,
        facts.properties_text,
    ]
    if of_image := image_variables(spec, facts, mode):
        parts.append(of_image)
    if facts.upgrade is not None:
        parts.append([facts.upgrade.image, facts.upgrade.env, facts.upgrade.init_containers])
    if mode is BrokerMode.KAFKA4 and facts.kafka4 is not None:
        parts.append([facts.kafka4.image, facts.kafka4.init_containers])
    return f"{mode}-{short_hash(parts)}"


def mode_variables(spec: MigrationSpec, facts: BrokerFacts, mode: BrokerMode) -> dict[str, str]:
    """Return the variables by which a mode's settings reach Kafka; none where they are in a properties file."""
    if spec.brokers.file is not None:
        return {}
    prefix = spec.brokers.env_prefix
    variables = {overlaid_variable(s, prefix, facts.given): v for s, v in broker_settings(spec, facts, mode).items()}
    if mode.is_of_kraft:
        # Images format new log dirs by it (kafka.docker.KafkaDockerWrapper, cp-kafka);
        # their default would be another cluster's id.
        cluster_id = bitnami.CLUSTER_ID if prefix == bitnami.PREFIX else "CLUSTER_ID"
        variables[cluster_id] = facts.cluster_id
    return variables


def overlaid_variable(setting: str, prefix: str, given: Collection[str]) -> str:
    """Return the variable that sets a setting: the image's alias if the user has that one, since it wins."""
    alias = bitnami.alias_of(setting)
    if prefix == bitnami.PREFIX and alias in given:
        return alias
    return variable_of(setting, prefix)


def image_variables(spec: MigrationSpec, facts: BrokerFacts, mode: BrokerMode) -> dict[str, str]:
    """Return the variables that an image needs in a mode besides Kafka's settings."""
    if mode is BrokerMode.ZOOKEEPER:
        return {}
    variables = dict.fromkeys(facts.zookeeper_writers, "false")
    if mode.is_of_kraft and spec.brokers.file is None and spec.brokers.env_prefix == bitnami.PREFIX:
        variables |= {bitnami.without_zookeeper(facts.given): "", **bitnami.node_id_command(facts.given)}
    return variables


def environment(spec: MigrationSpec, facts: BrokerFacts, mode: BrokerMode) -> dict[str, str]:
    """Return the variables that the overlay sets in the Kafka container."""
    return {
        **(facts.upgrade.env if facts.upgrade is not None and mode is not BrokerMode.ZOOKEEPER else {}),
        "JAVA_TOOL_OPTIONS": java_tool_options(facts.java_tool_options),
        **mode_variables(spec, facts, mode),
        **image_variables(spec, facts, mode),
    }


def overlay(spec: MigrationSpec, facts: BrokerFacts, name: str, mode: BrokerMode) -> dict[str, Any]:
    """Return the server-side apply configuration for one StatefulSet of the user: only what the mode needs."""
    env = environment(spec, facts, mode)
    # In the user's order, ours last: Kubernetes restarts pods
    # when only the order differs from what the user's chart renders later.
    own = [k for k in facts.variables if k in env]
    order = [*own, *sorted(env.keys() - set(own))]
    container: dict[str, Any] = {"name": spec.brokers.container, "env": [{"name": k, "value": env[k]} for k in order]}
    pod: dict[str, Any] = {"containers": [container]}
    new = facts.image_in(mode)
    if new is not None:
        container["image"] = new.image
        if new.init_containers:
            pod["initContainers"] = [{"name": name, "image": new.image} for name in new.init_containers]
    properties_volume = _properties_volume(spec, facts, mode)
    volumes = [] if properties_volume is None else [properties_volume]
    if facts.issued_secret:
        container["volumeMounts"] = [{"name": ISSUED_VOLUME, "mountPath": ISSUED_DIRECTORY, "readOnly": True}]
        volumes.append(_issued_volume(facts.issued_secret))
    if volumes:
        pod["volumes"] = volumes
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": facts.namespace},
        "spec": {
            "template": {
                "metadata": {"annotations": {ANNOTATION_CONFIGURATION: configuration(spec, facts, mode)}},
                "spec": pod,
            }
        },
    }


def with_volumes(volumes: Iterable[Mapping[str, Any]], ours: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return volumes after server-side apply of an overlay's volumes: merged by name, and the reference field by field.

    ``items`` and ``defaultMode`` of the user's reference stay, since the overlay sets the name of the object alone.
    """
    by_name = {v["name"]: dict(v) for v in volumes}
    for volume in ours:
        present = by_name.get(volume["name"], {})
        merged = {k: {**(present.get(k) or {}), **v} for k, v in volume.items() if isinstance(v, Mapping)}
        by_name[volume["name"]] = {**present, "name": volume["name"], **merged}
    return list(by_name.values())


def _issued_volume(secret: str) -> dict[str, Any]:
    items = [{"key": file, "path": file} for file in (AUTHORITIES, KEYSTORE)]
    return {"name": ISSUED_VOLUME, "secret": {"secretName": secret, "items": items}}


def _mounted(spec: MigrationSpec, facts: BrokerFacts) -> MountedFiles | None:
    source = spec.brokers.file
    if source is None:
        return None
    if facts.files is None and source.config_map is not None:
        return MountedFiles(FilesKind.CONFIG_MAP, source.config_map)
    return facts.files


def _properties_volume(spec: MigrationSpec, facts: BrokerFacts, mode: BrokerMode) -> dict[str, Any] | None:
    source = spec.brokers.properties
    files = _mounted(spec, facts)
    if source is None or files is None:
        return None
    name = names.broker_config_map(files.name, mode_of_file(mode))
    if files.kind is FilesKind.SECRET:
        return {"name": source.volume, "secret": {"secretName": name}}
    return {"name": source.volume, "configMap": {"name": name}}


def mode_of_file(mode: BrokerMode) -> BrokerMode:
    """Return the mode whose properties file a mode has: with Kafka 4 nothing but the image is another one."""
    return BrokerMode.KRAFT if mode is BrokerMode.KAFKA4 else mode


def properties_file(spec: MigrationSpec, facts: BrokerFacts, mode: BrokerMode) -> str:
    """Return the mode's properties file: the user's own without the settings that the mode replaces, then its own."""
    ours = broker_settings(spec, facts, mode)
    dropped = set(ours)
    if mode.is_of_kraft:
        dropped.update(REMOVED_IN_KRAFT)
        dropped |= {k for k in facts.settings if k.startswith(("zookeeper.", "inter.broker.protocol."))}
    text = without_settings(facts.properties_text, dropped)
    return f"{text.rstrip()}\n\n# kraftbridge, mode {mode_of_file(mode)}\n{render_properties(ours)}"


def properties_object(
    spec: MigrationSpec, facts: BrokerFacts, migration: str, mode: BrokerMode
) -> dict[str, Any] | None:
    """Return the mode's own copy of the user's ConfigMap or Secret with the properties file; None in ``Env`` style.

    The copy has all keys. One object per mode: an edited one would reach a container that merely restarts.
    """
    source = spec.brokers.properties
    files = _mounted(spec, facts)
    if source is None or files is None:
        return None
    text = properties_file(spec, facts, mode)
    secret = files.kind is FilesKind.SECRET
    value = base64.b64encode(text.encode()).decode() if secret else text
    rest = {k: v for k, v in files.binary_data.items() if k != source.key}
    return {
        "apiVersion": "v1",
        "kind": str(files.kind),
        "metadata": {
            "name": names.broker_config_map(files.name, mode_of_file(mode)),
            "namespace": facts.namespace,
            "labels": names.labels(migration),
        },
        "data": {**files.data, source.key: value},
        **({"binaryData": rest} if rest else {}),
    }
