"""Records brokers in ConfigMaps before their restarts, and asks them again afterwards."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from kraftbridge.builders import names
from kraftbridge.constants import API_VERSION, GROUP, KIND
from kraftbridge.exceptions import ActionError, ObservationError
from kraftbridge.models.broker_record import BrokerNow, BrokerRecord, EffectiveSetting, ListenerState, packed, unpacked
from kraftbridge.models.decision import RecordBroker
from kraftbridge.models.objects import section
from kraftbridge.models.observation import PodState, Unobserved
from kraftbridge.outside import bounds
from kraftbridge.phases.becoming.offsets import RECORD_HOLDS_FOR
from kraftbridge.phases.draft import Identity
from kraftbridge.services.clients import ClusterClients
from kraftbridge.storage.ports import BrokerRecordPort, KubernetesPort, ReadPort

PART_BYTES: Final = 700_000
"""The API server refuses a ConfigMap over 1 MiB, in base64."""
RECORD_KEY: Final = "record.json.zlib"
ANNOTATION_PARTS: Final = f"{GROUP}/record-parts"
ANNOTATION_TAKEN: Final = f"{GROUP}/record-taken-at"
LOG_OF_A_START_BYTES: Final = 8 * 1024 * 1024
"""A KRaft broker logs more than 256 KiB before it serves."""
BOOTSTRAP: Final = "as Metadata lists it"
"""Name of the listener that the operator's own clients use; Metadata does not name it."""

_EVERY_ADDRESS: Final = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
_STARTED: Final = re.compile(r"Kafka version: ")
"""``AppInfoParser`` logs it at each start."""
_REFUSED: Final = re.compile(r"(?:Per-broker configs of \d+|Cluster default configs) could not be applied: .*")
"""``DynamicBrokerConfig.updateBrokerConfig`` and ``updateDefaultConfig``."""


def record(
    kubernetes: KubernetesPort, identity: Identity, clients: ClusterClients, action: RecordBroker, now: datetime
) -> None:
    """Ask a broker what it is, and keep the answer.

    Raises
    ------
    ActionError
        The broker or a leader of one of its partitions does not answer, or the ConfigMap cannot be written.
    """
    with closing(clients.broker_records()) as client:
        try:
            settings = client.settings(action.node_id)
            record = BrokerRecord(
                node_id=action.node_id,
                pod_uid=action.pod_uid,
                pod_ip=action.pod_ip,
                taken_at=now,
                settings=settings,
                listeners=tuple(_listeners(client, action.node_id, settings)),
                offsets=client.offsets(action.node_id, RECORD_HOLDS_FOR),
            )
        except ObservationError as error:
            raise ActionError(f"broker {action.node_id} was not recorded: {error}") from error
    data = packed(record)
    parts = [data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES)]
    # The first part is written last: it names the others.
    for number, part in reversed(list(enumerate(parts))):
        kubernetes.apply(_config_map(identity, action.config_map, number, len(parts), part, now), force=True)


def read(kubernetes: ReadPort, namespace: str, name: str) -> BrokerRecord | None:
    """Return the record in a ConfigMap; None if it was never written as a whole.

    Raises
    ------
    ObservationError
        It cannot be read, or it is not a record.
    """
    source = f"ConfigMap {namespace}/{name}"
    first = kubernetes.get("v1", "ConfigMap", namespace, name)
    if first is None:
        return None
    annotations = section(first, "metadata", "annotations")
    advice = "Let the ConfigMap be as the operator wrote it"
    try:
        parts = int(annotations.get(ANNOTATION_PARTS, "1"))
        bounds.count(source, parts, bounds.RECORD_BYTES // PART_BYTES, "parts", advice)
        data = _part(first)
    except (ValueError, OSError) as error:
        raise ObservationError(source, str(error)) from error
    for number in range(1, parts):
        part = kubernetes.get("v1", "ConfigMap", namespace, names.part_of(name, number))
        taken = section(part, "metadata", "annotations").get(ANNOTATION_TAKEN)
        if part is None or taken != annotations.get(ANNOTATION_TAKEN):
            return None
        try:
            data += _part(part)
        except ValueError as error:
            raise ObservationError(f"ConfigMap {namespace}/{names.part_of(name, number)}", str(error)) from error
    try:
        return unpacked(data)
    except (ValueError, OSError) as error:
        raise ObservationError(source, str(error)) from error


def ask(
    kubernetes: ReadPort,
    namespace: str,
    clients: ClusterClients,
    recorded: BrokerRecord | None,
    node_id: int,
    pod: PodState,
    container: str,
) -> BrokerNow:
    """Return what a broker is now.

    Parameters
    ----------
    known
        What it was. Its listeners and partitions are asked again; None: nothing is on record.

    Raises
    ------
    ObservationError
        The broker does not answer.
    """
    with closing(clients.broker_records()) as client:
        settings = client.settings(node_id)
        now = BrokerNow(node_id, pod.uid, pod.ip, settings=settings, listeners=(), offsets={}, refusals=())
        if recorded is not None:
            listeners = tuple(_listeners_again(client, recorded, pod, settings))
            now = replace(now, listeners=listeners, offsets=client.offsets_now(node_id, recorded.offsets))
        if any(setting.is_dynamic for setting in settings.values()):  # nothing else can be refused
            now = replace(now, refusals=_refusals(kubernetes, namespace, pod.name, container))
        return now


def _refusals(kubernetes: ReadPort, namespace: str, pod: str, container: str) -> tuple[str, ...] | Unobserved:
    source = f"log of pod {pod}"
    try:
        log = kubernetes.pod_logs(namespace, pod, container, None, limit_bytes=LOG_OF_A_START_BYTES)
    except ObservationError as error:
        return Unobserved(source, error.reason)
    if log is None or _STARTED.search(log) is None:
        return Unobserved(source, 'the line "Kafka version" of its start is not in it')
    return tuple(match.group() for match in _REFUSED.finditer(log))


def _listeners(
    client: BrokerRecordPort, node_id: int, settings: Mapping[str, EffectiveSetting]
) -> Iterator[ListenerState]:
    address = client.address(node_id)
    own_name = ""
    if address is not None:
        yield ListenerState(BOOTSTRAP, *address)
        own_name = address[0]
    protocols = _protocols(settings)
    for name, advertised, port in _advertised(settings):
        host = advertised or own_name
        if host:
            yield client.listener(name, host, port, protocols.get(name, name))


def _listeners_again(
    client: BrokerRecordPort, recorded: BrokerRecord, pod: PodState, settings: Mapping[str, EffectiveSetting]
) -> Iterator[ListenerState]:
    """Yield what the recorded listeners show now, each at its recorded address, or at the pod's new one."""
    protocols = _protocols(settings)
    for before in recorded.listeners:
        if before.name == BOOTSTRAP:
            address = client.address(recorded.node_id)
            if address is not None:
                yield ListenerState(BOOTSTRAP, *address)
        elif not before.trouble:
            host = pod.ip if before.host == recorded.pod_ip else before.host
            yield client.listener(before.name, host, before.port, protocols.get(before.name, before.name))


def _advertised(settings: Mapping[str, EffectiveSetting]) -> Iterator[tuple[str, str, int]]:
    """Yield name, host and port of each advertised listener, by default of ``listeners`` (KafkaConfig)."""
    text = _value(settings, "advertised.listeners") or _value(settings, "listeners")
    for entry in text.split(","):
        listener = re.fullmatch(r"\s*([^:\s]+)://(.*):(\d+)\s*", entry)
        if listener is not None:
            host = listener[2].strip("[]")
            if host in _EVERY_ADDRESS:
                host = ""
            yield listener[1].upper(), host, int(listener[3])


def _protocols(settings: Mapping[str, EffectiveSetting]) -> dict[str, str]:
    pairs = (entry.partition(":") for entry in _value(settings, "listener.security.protocol.map").split(","))
    return {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs if name.strip()}


def _value(settings: Mapping[str, EffectiveSetting], name: str) -> str:
    setting = settings.get(name)
    if setting is None:
        return ""
    return setting.value or ""


def _part(config_map: Mapping[str, Any]) -> bytes:
    return base64.b64decode(section(config_map, "binaryData").get(RECORD_KEY, ""))


def _config_map(identity: Identity, name: str, number: int, parts: int, data: bytes, now: datetime) -> dict[str, Any]:
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": identity.name, "uid": identity.uid}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.part_of(name, number),
            "namespace": identity.namespace,
            "labels": names.labels(identity.name),
            "annotations": {ANNOTATION_PARTS: str(parts), ANNOTATION_TAKEN: now.astimezone(UTC).isoformat()},
            "ownerReferences": [owner],
        },
        "binaryData": {RECORD_KEY: base64.b64encode(data).decode()},
    }
