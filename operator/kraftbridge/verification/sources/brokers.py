# mypy: disable-error-code="misc"
# pyspark's classes are untyped here: deriving from them is the one thing that mypy refuses.
"""The Spark data source `broker-served`: what each broker answers, as canonical entities.

The requests are Metadata, DescribeConfigs, DescribeUserScramCredentials and DescribeAcls.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from typing_extensions import override

from kraftbridge.exceptions import MetadataError
from kraftbridge.metadata.entities import (
    Entity,
    canonical_json,
    served_partition_value,
    uuid_text,
)
from kraftbridge.metadata.log.image import acl_identity, scram_mechanism
from kraftbridge.models.broker_settings import AUTHORIZER
from kraftbridge.models.config_values import ConfigType, canonical_values
from kraftbridge.models.entities import EntityKind, partition_key, scram_key
from kraftbridge.models.release_changes import OLD_AUTHORIZER
from kraftbridge.models.report import BrokerAccess
from kraftbridge.models.secrecy import is_password
from kraftbridge.verification.quorum import NodeUnavailableError, connected, read_security
from kraftbridge.verification.sources.rows import (
    SCHEMA_DDL,
    Leg,
    Note,
    ServedPlan,
    broker_place,
    entity_batches,
    note_batch,
)

if TYPE_CHECKING:
    from kraftbridge.kafka.wire import Connection


CLUSTER_DEFAULT: Final = "<default>"
_TOPIC_RESOURCE: Final = 2
_BROKER_RESOURCE: Final = 4
# `DescribeConfigsResponse.ConfigSource`
_DYNAMIC_TOPIC_CONFIG: Final = 1
_DYNAMIC_BROKER_CONFIG: Final = 2
_DYNAMIC_DEFAULT_BROKER_CONFIG: Final = 3
# `Errors`
_NOT_THERE: Final = frozenset({3, 5, 100})
"""UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_ID: this broker does not know the topic (yet)."""
_NOT_ALLOWED: Final = frozenset({29, 31})
"""TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED."""
_TOPICS_PER_REQUEST: Final = 500
_FIRST_WITH_TOPIC_IDS: Final = 10
"""Version of Metadata (KIP-516, Kafka 2.8)."""
_FIRST_WITH_TYPES: Final = 3
"""Version of DescribeConfigs (KIP-569, Kafka 2.6)."""
_NO_ID: Final = bytes(16)
"""The answer of a broker that knows no id (``Uuid.ZERO_UUID``)."""
_OF_ZOOKEEPER: Final = frozenset({"kafka.security.authorizer.AclAuthorizer", OLD_AUTHORIZER})
"""Authorizers that keep the ACLs of ZooKeeper in their memory. They answer DescribeAcls from there."""
_ANY: Final = 1
"""In a filter of ACLs: every resource type, pattern type, operation and permission (``AclBindingFilter.ANY``)."""


class BrokerUnavailableError(MetadataError):
    """A broker did not answer."""


class NotAllowedError(MetadataError):
    """The client's principal may not see a resource."""


def brokers_behind(
    bootstrap_servers: str, config_path: str | None, timeout_seconds: float = 10.0
) -> list[BrokerAccess]:
    """Return every broker that the first reachable bootstrap server returns, with its advertised listener.

    Raises
    ------
    BrokerUnavailableError
        No server answers. The message contains the error of each.
    """
    from kraftbridge.kafka.wire import host_ports  # noqa: PLC0415 - kafka-python is heavy

    security = read_security(config_path)
    try:
        servers = host_ports(bootstrap_servers)
    except ValueError as error:
        raise BrokerUnavailableError(f"bootstrap servers {bootstrap_servers!r} cannot be read: {error}") from error
    failures = []
    for host, port in servers:
        try:
            with connected(host, port, security, timeout_seconds) as connection:
                response = connection.metadata(timeout_seconds)
        except NodeUnavailableError as error:
            failures.append(f"{host}:{port}: {error}")
            continue
        if response.brokers:
            brokers = [
                BrokerAccess(id=broker.node_id, host=broker.host, port=broker.port) for broker in response.brokers
            ]
            return sorted(brokers, key=lambda broker: broker.id)
        failures.append(f"{host}:{port}: it knows no brokers as yet")
    raise BrokerUnavailableError(f"no bootstrap server names the brokers ({'; '.join(failures)})")


@dataclass(slots=True)
class ServedBroker:
    """A connection to one broker."""

    access: BrokerAccess
    connection: Connection
    timeout_seconds: float
    """Time limit of each request."""
    types: dict[str, ConfigType] = field(default_factory=dict)
    """Type of each setting in the answers so far, by name."""

    @property
    def where(self) -> str:
        """The broker's name in messages."""
        return f"broker {self.access.id} at {self.access.host}:{self.access.port}"

    def topics(self, names: Sequence[str] | None = None, *, configs: bool = True) -> Iterator[Entity]:
        """Yield topics with their partitions and optionally their dynamic configs.

        These are all topics, or the named ones that exist.

        Raises
        ------
        NotAllowedError
            The principal may not see a named topic, or a topic's configs.
        """
        if names is None:
            chunks: list[Sequence[str] | None] = [None]
        else:
            chunks = [names[start : start + _TOPICS_PER_REQUEST] for start in range(0, len(names), _TOPICS_PER_REQUEST)]
        for chunk in chunks:
            topics = self._metadata(chunk)
            yield from _topics_and_partitions(topics)
            held = [topic.name for topic in topics] if configs else []
            for start in range(0, len(held), _TOPICS_PER_REQUEST):
                part = held[start : start + _TOPICS_PER_REQUEST]
                for name, config in self._configs(_TOPIC_RESOURCE, part, _DYNAMIC_TOPIC_CONFIG).items():
                    if config:
                        yield Entity(EntityKind.TOPIC_CONFIG, name, canonical_json(config), -1)

    def own_configs(self) -> Iterator[Entity]:
        """Yield the dynamic configs of this broker and the cluster, without passwords; a hidden value is None."""
        for name, key, source in (
            (str(self.access.id), str(self.access.id), _DYNAMIC_BROKER_CONFIG),
            ("", CLUSTER_DEFAULT, _DYNAMIC_DEFAULT_BROKER_CONFIG),
        ):
            configs = self._configs(_BROKER_RESOURCE, [name], source).get(name, {})
            plain = {config: value for config, value in configs.items() if not is_password(config)}
            if plain:
                yield Entity(EntityKind.BROKER_CONFIG, key, canonical_json(plain), -1)

    @property
    def tells_topic_ids(self) -> bool:
        """Whether the broker's release has topic ids."""
        from kafka.protocol.metadata import MetadataRequest  # noqa: PLC0415 - kafka-python is heavy

        return self.connection.answers(MetadataRequest, _FIRST_WITH_TOPIC_IDS)

    def acls(self) -> list[Entity] | None:
        """Return the ACLs by which the broker authorizes; None unless it keeps those of ZooKeeper.

        Raises
        ------
        NotAllowedError
            The principal may not describe the cluster.
        """
        from kafka.protocol.admin import DescribeAclsRequest  # noqa: PLC0415 - kafka-python is heavy

        if self._authorizer() not in _OF_ZOOKEEPER:
            return None
        answered = self.connection.call(
            DescribeAclsRequest,
            self.timeout_seconds,
            min_version=1,  # KIP-290: prefixed patterns
            max_version=3,
            resource_type_filter=_ANY,
            resource_name_filter=None,
            pattern_type_filter=_ANY,
            principal_filter=None,
            host_filter=None,
            operation=_ANY,
            permission_type=_ANY,
        )
        self._is_there(answered.error_code, "ACLs", "Describe")
        return [
            Entity(EntityKind.ACL, _acl_key(resource, acl), "{}", -1)
            for resource in answered.resources
            for acl in resource.acls
        ]

    def _authorizer(self) -> str:
        name = str(self.access.id)
        (told,) = self._describe_configs(_BROKER_RESOURCE, [name], [AUTHORIZER])
        if not self._is_there(told.error_code, f"configs of broker {name}", "DescribeConfigs"):
            return ""
        return next((config.value or "" for config in told.configs if config.name == AUTHORIZER), "")

    def scram_credentials(self) -> Iterator[Entity]:
        """Yield the users that the broker knows, with mechanism and iterations.

        No answer contains salts or keys (KIP-554).

        Raises
        ------
        NotAllowedError
            The principal may not describe the cluster.

        Notes
        -----
        A broker in KRaft mode answers from its own image (``KRaftMetadataCache.describeScramCredentials``),
        from which it also lets users in.
        No users and null both ask for all.
        Null is never answered to a principal without the right:
        ``DescribeUserScramCredentialsRequest.getErrorResponse`` of 3.9.1 goes through the users.
        """
        from kafka.protocol.admin import DescribeUserScramCredentialsRequest  # noqa: PLC0415 - kafka-python is heavy

        answered = self.connection.call(
            DescribeUserScramCredentialsRequest, self.timeout_seconds, min_version=0, max_version=0, users=[]
        )
        what = "SCRAM credentials"
        if answered.error_code in _NOT_ALLOWED:
            raise NotAllowedError(
                f"{self.where} does not let the client's principal see {what}: it needs Describe on the cluster"
            )
        for error in (answered.error_code, *(result.error_code for result in answered.results)):
            if error:
                raise BrokerUnavailableError(f"{self.where}: {what} answers error {error}")
        for result in answered.results:
            for info in result.credential_infos:
                key = scram_key(result.user, scram_mechanism(info.mechanism))
                value = canonical_json({"iterations": info.iterations})
                yield Entity(EntityKind.SCRAM_CREDENTIAL, key, value, -1)

    def _metadata(self, names: Sequence[str] | None) -> Sequence[Any]:
        from kafka.protocol.metadata import MetadataRequest  # noqa: PLC0415 - kafka-python is heavy

        topics = None
        if names is not None:
            topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        answered = self.connection.call(
            MetadataRequest,
            self.timeout_seconds,
            min_version=7,  # KIP-320: leader epochs
            max_version=12,
            topics=topics,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        ).topics
        return [topic for topic in answered if self._is_there(topic.error_code, f"topic {topic.name}", "Describe")]

    def _configs(self, kind: int, names: Sequence[str], source: int) -> dict[str, dict[str, str | None]]:
        """Return the configs of each resource from one source, each value in Kafka's spelling, and keep their types.

        A value that the broker hides is None: one that is sensitive, or of unknown type (``ConfigHelper``).
        So is every value of a broker that tells no types, because nobody knows its other spellings.
        The resource of all brokers is answered as it was written,
        the others are answered as they were parsed (``ConfigHelper.describeConfigs`` of 3.9.1).
        """
        configs = {}
        for result in self._describe_configs(kind, names, None):
            what = f"configs of {'topic' if kind == _TOPIC_RESOURCE else 'broker'} {result.resource_name}"
            if self._is_there(result.error_code, what, "DescribeConfigs"):
                held = [config for config in result.configs if config.config_source == source]
                if not self._tells_types:
                    configs[result.resource_name] = dict.fromkeys(config.name for config in held)
                    continue
                self.types |= {config.name: ConfigType(config.config_type) for config in held}
                values = {config.name: config.value for config in held}
                configs[result.resource_name] = canonical_values(self.types, values)
        return configs

    @property
    def _tells_types(self) -> bool:
        from kafka.protocol.admin.configs import DescribeConfigsRequest  # noqa: PLC0415 - kafka-python is heavy

        return self.connection.answers(DescribeConfigsRequest, _FIRST_WITH_TYPES)

    def _describe_configs(self, kind: int, names: Sequence[str], keys: Sequence[str] | None) -> Sequence[Any]:
        from kafka.protocol.admin.configs import DescribeConfigsRequest  # noqa: PLC0415 - kafka-python is heavy

        resource = DescribeConfigsRequest.DescribeConfigsResource
        results: Sequence[Any] = self.connection.call(
            DescribeConfigsRequest,
            self.timeout_seconds,
            min_version=1,  # KIP-226: the source of a value
            max_version=4,
            resources=[resource(resource_type=kind, resource_name=name, configuration_keys=keys) for name in names],
            include_synonyms=False,
            include_documentation=False,
        ).results
        return results

    def _is_there(self, error: int, what: str, operation: str) -> bool:
        if error in _NOT_ALLOWED:
            raise NotAllowedError(
                f"{self.where} does not let the client's principal see {what}: "
                f"it needs {operation} on every topic and the cluster"
            )
        if error and error not in _NOT_THERE:
            raise BrokerUnavailableError(f"{self.where}: {what} answers error {error}")
        return not error


@contextmanager
def served_broker(access: BrokerAccess, config_path: str | None, timeout_seconds: float) -> Iterator[ServedBroker]:
    """Open a connection to one broker for a `with` block.

    Raises
    ------
    BrokerUnavailableError
        The broker does not answer.
    """
    where = f"broker {access.id} at {access.host}:{access.port}"
    try:
        with connected(access.host, access.port, read_security(config_path), timeout_seconds) as connection:
            yield ServedBroker(access, connection, timeout_seconds)
    except NodeUnavailableError as error:
        raise BrokerUnavailableError(f"{where}: {error}") from error
    except (ValueError, AttributeError) as error:  # the answer does not follow the protocol
        raise BrokerUnavailableError(f"{where}: {error!r}") from error


def _topics_and_partitions(topics: Sequence[Any]) -> Iterator[Entity]:
    for topic in topics:
        value = canonical_json({"topicId": _topic_id(topic)})
        yield Entity(EntityKind.TOPIC, topic.name, value, -1)
        for partition in topic.partitions:
            value = served_partition_value(
                partition.replica_nodes, partition.leader_id, partition.leader_epoch, partition.isr_nodes
            )
            yield Entity(EntityKind.PARTITION, partition_key(topic.name, partition.partition_index), value, -1)


def _topic_id(topic: Any) -> str | None:
    told = topic.topic_id.bytes if topic.topic_id else _NO_ID
    return None if told == _NO_ID else uuid_text(told)


def _acl_key(resource: Any, acl: Any) -> str:
    return acl_identity(
        {
            "resourceType": resource.resource_type,
            "patternType": resource.pattern_type,
            "resourceName": resource.resource_name,
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation,
            "permissionType": acl.permission_type,
        }
    )


class _BrokerPartition(InputPartition):
    def __init__(self, broker: BrokerAccess) -> None:
        super().__init__(broker.id)
        self.broker = broker


@dataclass(slots=True)
class _Answers:
    """What one broker answers."""

    entities: list[Entity]
    own: list[Entity]
    """Its own configs and those of the cluster."""
    types: dict[str, ConfigType]
    hidden: str | None = None
    """Why it hides SCRAM credentials or ACLs."""
    enforces: bool = False
    """Whether the entities have all ACLs by which it authorizes."""


class _ServedReader(DataSourceReader):
    def __init__(self, plan: ServedPlan) -> None:
        self._plan = plan

    @override
    def partitions(self) -> Sequence[InputPartition]:
        return [_BrokerPartition(broker) for broker in self._plan.brokers]

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _BrokerPartition)
        place = broker_place(partition.broker.id)
        try:
            answers = self._ask(partition.broker)
        except NotAllowedError as error:
            yield note_batch(Leg.SERVED, place, Note.DENIED, place, str(error))
            return
        except MetadataError as error:
            yield note_batch(Leg.SERVED, place, Note.PROBLEM, place, str(error))
            return
        yield from entity_batches(Leg.SERVED, place, answers.entities)
        yield from entity_batches(Leg.OWN, place, answers.own)
        if answers.hidden is not None:
            yield note_batch(Leg.SERVED, place, Note.UNREAD, place, answers.hidden)
        if answers.enforces:
            yield note_batch(Leg.SERVED, place, Note.ENFORCED, place, len(answers.entities))
        yield note_batch(Leg.SERVED, place, Note.TYPES, place, answers.types)
        yield note_batch(Leg.SERVED, place, Note.COUNT, place, len(answers.entities))

    def _ask(self, broker: BrokerAccess) -> _Answers:
        plan = self._plan
        began = time.monotonic()
        while True:
            try:
                with served_broker(broker, plan.client_config_path, plan.timeout_seconds) as asked:
                    return self._answers(asked)
            except BrokerUnavailableError:
                if time.monotonic() - began > plan.patience_seconds:
                    raise
            time.sleep(1)

    def _answers(self, asked: ServedBroker) -> _Answers:
        answers = _Answers(list(asked.topics()), list(asked.own_configs()), asked.types)
        try:
            if asked.access.id in self._plan.on_kraft:
                answers.entities += asked.scram_credentials()
            acls = asked.acls() if self._plan.acls else None
        except NotAllowedError as error:
            answers.hidden = str(error)
            return answers
        if acls is not None:
            answers.entities += acls
            answers.enforces = True
        return answers


class BrokerServedSource(DataSource):
    """Spark data source `broker-served`."""

    @override
    @classmethod
    def name(cls) -> str:
        return "broker-served"

    @override
    def schema(self) -> str:
        return SCHEMA_DDL

    @override
    def reader(self, schema: Any) -> DataSourceReader:
        return _ServedReader(ServedPlan.model_validate(json.loads(self.options["plan"])))
