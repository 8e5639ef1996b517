"""Connections to the cluster, and the requests for which neither admin client has a method."""

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)

BROKER_RESOURCE = 4
TOPIC_RESOURCE = 2
SET, DELETE = 0, 1
# DescribeConfigs: a value set on the topic; on the broker itself; on <default>.
CERTIFICATE_FILES = {"authority": "ca.crt", "certificate": "tls.crt", "key": "tls.key"}
OWN_SOURCES = {TOPIC_RESOURCE: (1,), BROKER_RESOURCE: (2, 3)}

# librdkafka and the JVM both cache broker addresses. A pod's address changes at every restart, and it is the
# cluster's stalls that are to be measured, not this client's own cache; the same for its back-off, which would
# grow to 10 s while the broker is away (the Java client's limit is 1 s).
LIBRDKAFKA_COMMON = {
    "broker.address.ttl": 100,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    "log_level": 2,
}


class RequestFailedError(Exception):
    """A broker answered with an error code."""


def bootstrap_servers() -> str:
    """Return the brokers' addresses from ``KAFKA_BOOTSTRAP``."""
    return os.environ["KAFKA_BOOTSTRAP"]


def login() -> dict[str, str]:
    """Return ``user``, ``password`` and ``mechanism`` from ``KAFKA_LOGIN``; nothing where the listener asks for none."""
    return json.loads(os.environ.get("KAFKA_LOGIN") or "{}")


def librdkafka_config(**settings: Any) -> dict[str, Any]:
    """Return a configuration for confluent-kafka's clients; ``_`` in names stands for ``.``."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return {
        "bootstrap.servers": bootstrap_servers(),
        **LIBRDKAFKA_COMMON,
        **_librdkafka_login(),
        "error_cb": lambda _: None,  # transport errors are expected; failed deliveries are counted elsewhere
        **named,
    }


def certificates() -> dict[str, str]:
    """Return the paths of authority, certificate and key below ``KAFKA_TLS``; nothing where the listener has no TLS."""
    folder = os.environ.get("KAFKA_TLS")
    return {part: f"{folder}/{name}" for part, name in CERTIFICATE_FILES.items()} if folder else {}


def security_protocol() -> str:
    """Return ``security.protocol`` as Kafka names it."""
    kind = "SSL" if certificates() else "PLAINTEXT"
    return f"SASL_{kind}" if login() else kind


def _librdkafka_login() -> dict[str, str]:
    known, files = login(), certificates()
    settings = {"security.protocol": security_protocol().lower()}
    if known:
        settings |= {
            "sasl.mechanism": known["mechanism"],
            "sasl.username": known["user"],
            "sasl.password": known["password"],
        }
    if files:
        settings |= {
            "ssl.ca.location": files["authority"],
            "ssl.certificate.location": files["certificate"],
            "ssl.key.location": files["key"],
        }
    return settings


def _kafka_python_login() -> dict[str, str]:
    known, files = login(), certificates()
    settings = {"security_protocol": security_protocol()}
    if known:
        settings |= {
            "sasl_mechanism": known["mechanism"],
            "sasl_plain_username": known["user"],
            "sasl_plain_password": known["password"],
        }
    if files:
        settings |= {
            "ssl_cafile": files["authority"],
            "ssl_certfile": files["certificate"],
            "ssl_keyfile": files["key"],
        }
    return settings


def confluent_admin() -> AdminClient:
    """Return confluent-kafka's admin client: topics, configs of topics, SCRAM credentials."""
    return AdminClient(librdkafka_config())


def log_offsets(admin: AdminClient, topics: Iterable[str], where: OffsetSpec) -> dict[tuple[str, int], int]:
    """Return where the partitions of these topics begin or end now."""
    known = admin.list_topics(timeout=20).topics
    wanted = {TopicPartition(name, index): where for name in topics for index in known[name].partitions}
    found = admin.list_offsets(wanted, request_timeout=20)
    return {(place.topic, place.partition): outcome.result().offset for place, outcome in found.items()}


def wait_until_formed(timeout_s: float = 180) -> None:
    """Wait until every broker knows all the others and the controller.

    A broker opens its port, and so is Ready, before it has heard from the controller. A client that asks it then is told
    that there is none, and librdkafka's admin requests wait for one until they time out.
    """
    servers = bootstrap_servers().split(",")
    deadline = time.monotonic() + timeout_s
    for server in servers:
        while trouble := _what_is_missing(server, len(servers)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"broker {server} after {timeout_s:.0f} s: {trouble}")
            time.sleep(0.5)


def _what_is_missing(server: str, brokers: int) -> str:
    try:
        metadata = AdminClient(librdkafka_config() | {"bootstrap.servers": server}).list_topics(timeout=5)
    except KafkaException as error:
        return str(error)
    if len(metadata.brokers) < brokers or metadata.controller_id < 0:
        return f"knows {len(metadata.brokers)} brokers, controller {metadata.controller_id}"
    return ""


class WireAdmin(KafkaAdminClient):
    """kafka-python's admin client, and four requests that only its protocol classes know."""

    def __init__(self, bootstrap: str | None = None) -> None:
        super().__init__(
            **_kafka_python_login(),
            bootstrap_servers=(bootstrap or bootstrap_servers()).split(","),
            request_timeout_ms=30_000,
            bootstrap_timeout_ms=60_000,
        )

    def _send(self, request: Any, node_id: int | None = None) -> Any:
        # kafka-python has no public way to send a request of one's own.
        return self._manager.run(self._send_to, request, node_id)

    async def _send_to(self, request: Any, node_id: int | None) -> Any:
        return await self._manager.send(request, node_id=node_id)

    def set_broker_configs(self, broker: str, values: Mapping[str, str | None]) -> None:
        """Set dynamic configs of one broker, or of all by default with the empty name."""
        # A broker's own configs are validated by that broker; the default goes to any.
        self.alter_configs(BROKER_RESOURCE, broker, values, int(broker) if broker else None)

    def alter_configs(
        self, resource_type: int, name: str, values: Mapping[str, str | None], node_id: int | None = None
    ) -> None:
        """Set dynamic configs of one resource; ``None`` deletes one."""
        entries = [(key, DELETE if value is None else SET, value) for key, value in values.items()]
        request = IncrementalAlterConfigsRequest(resources=[(resource_type, name, entries)], validate_only=False)
        response = self._send(request, node_id)
        _raise_for_errors(f"configs of {resource_type}:{name or '<default>'}", response.responses)

    def dynamic_configs(
        self, resource_type: int, names: Iterable[str], node_id: int | None = None
    ) -> dict[str, dict[str, str | None]]:
        """Return the values that were set on these resources themselves; passwords are ``None``."""
        request = DescribeConfigsRequest(
            resources=[(resource_type, name, None) for name in names],
            include_synonyms=False,
            min_version=1,
        )
        response = self._send(request, node_id)
        _raise_for_errors("describing configs", response.results)
        own = OWN_SOURCES[resource_type]
        return {
            result.resource_name: {entry.name: entry.value for entry in result.configs if entry.config_source in own}
            for result in response.results
        }

    def set_quotas(self, quotas: Iterable[tuple[Mapping[str, str | None], Mapping[str, float]]]) -> None:
        """Set client quotas: entity (type to name, ``None`` for the default) and values."""
        entry_type = AlterClientQuotasRequest.EntryData
        request = AlterClientQuotasRequest(
            entries=[
                entry_type(
                    entity=[entry_type.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                    ops=[entry_type.OpData(key=key, value=value, remove=False) for key, value in values.items()],
                )
                for entity, values in quotas
            ],
            validate_only=False,
        )
        _raise_for_errors("client quotas", self._send(request).entries)

    def quotas(self) -> dict[str, dict[str, float]]:
        """Return all client quotas, keyed by a readable form of the entity."""
        response = self._send(DescribeClientQuotasRequest(components=[], strict=False))
        if response.error_code:
            raise RequestFailedError(f"describing client quotas: {response.error_message}")
        return {
            ",".join(
                f"{part.entity_type}={'<default>' if part.entity_name is None else part.entity_name}"
                for part in sorted(entry.entity, key=lambda part: part.entity_type)
            ): {value.key: value.value for value in entry.values}
            for entry in response.entries or []
        }


T = TypeVar("T")


def insist(act: Callable[[WireAdmin], T], timeout_s: float = 120) -> T:
    """Repeat what has no answer or finds no controller, with a new client each time: an old one may know addresses of before."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            wire = WireAdmin()
            try:
                return act(wire)
            finally:
                wire.close()
        except (KafkaError, RequestFailedError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def _raise_for_errors(what: str, results: Iterable[Any]) -> None:
    failed = [result for result in results if result.error_code]
    if failed:
        raise RequestFailedError(f"{what}: {failed}")
