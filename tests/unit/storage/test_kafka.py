from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.admin.client_quotas import AlterClientQuotasResponse
from kafka.protocol.admin.cluster import (
    DescribeClusterResponse,
    DescribeLogDirsResponse,
    DescribeQuorumResponse,
    UpdateFeaturesResponse,
)
from kafka.protocol.admin.configs import DescribeConfigsResponse
from kafka.protocol.admin.topics import (
    CreateTopicsResponse,
    DeleteTopicsResponse,
    ListPartitionReassignmentsResponse,
)
from kafka.protocol.metadata.api_versions import ApiVersionsResponse
from kafka.protocol.metadata.metadata import MetadataResponse
from tests.unit.storage.servers import KafkaNode

from kraftbridge.exceptions import ActionError, ActionRefusedError, InvalidSpecError, ObservationError
from kraftbridge.kafka.client import Security
from kraftbridge.kafka.wire import host_ports
from kraftbridge.models.assignments import Replicas
from kraftbridge.models.metadata_version import Upgrade
from kraftbridge.models.observation import (
    FeatureAnswer,
    NodeFeatures,
    QuorumState,
    TopicIds,
    TopicRedundancy,
    Unobserved,
    VoterState,
)
from kraftbridge.models.survey import BrokerSetting, LogDir, SettingSource, Visibility
from kraftbridge.storage import kafka_brokers as kafka_module
from kraftbridge.storage import kafka_controllers as controllers_module
from kraftbridge.storage.kafka_brokers import BrokerClient
from kraftbridge.storage.kafka_controllers import ControllerClient

METADATA, CONFIGS, QUORUM = MetadataResponse.API_KEY, DescribeConfigsResponse.API_KEY, DescribeQuorumResponse.API_KEY
REASSIGNMENTS, QUOTAS = ListPartitionReassignmentsResponse.API_KEY, AlterClientQuotasResponse.API_KEY
CREATE, DELETE = CreateTopicsResponse.API_KEY, DeleteTopicsResponse.API_KEY
FEATURES, CLUSTER = UpdateFeaturesResponse.API_KEY, DescribeClusterResponse.API_KEY
LOG_DIRS = DescribeLogDirsResponse.API_KEY
VERSIONS = {
    ApiVersionsResponse.API_KEY: (0, 4),
    METADATA: (0, 12),
    CONFIGS: (1, 4),
    QUORUM: (0, 2),
    REASSIGNMENTS: (0, 0),
    QUOTAS: (0, 1),
    CREATE: (0, 5),
    DELETE: (0, 5),
    FEATURES: (0, 1),
    CLUSTER: (0, 1),
}
NOT_LEADER, NOT_CONTROLLER, UNAUTHORIZED, TIMED_OUT = 6, 41, 31, 7
UNKNOWN_TOPIC, TOPIC_EXISTS, POLICY_VIOLATION, DELETION_DISABLED = 3, 36, 44, 73

MakeNode = Callable[..., KafkaNode]


@pytest.fixture
def make_node(monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeNode]:
    """Nodes on this host; time limits are cut so that silent ones cost tenths of seconds."""
    for module in (kafka_module, controllers_module):
        monkeypatch.setattr(module, "REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(controllers_module, "WRITE_SECONDS", 0.6)
    nodes: list[KafkaNode] = []

    def make(answers: dict[int, Any], **said: Any) -> KafkaNode:
        nodes.append(KafkaNode(answers, VERSIONS, **said))
        return nodes[-1]

    yield make
    for node in nodes:
        node.close()


def partition(index: int, replicas: list[int], isr: list[int], leader: int = 0, error: int = 0) -> Any:
    return MetadataResponse.MetadataResponseTopic.MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=1,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=[],
    )


def metadata(topics: dict[str, list[Any]], brokers: dict[int, int] | None = None, controller: int = 0) -> Any:
    """An answer to Metadata; ``brokers`` gives each broker's port."""
    broker = MetadataResponse.MetadataResponseBroker
    topic = MetadataResponse.MetadataResponseTopic
    nodes = {0: 1} if brokers is None else brokers
    return MetadataResponse, {
        "throttle_time_ms": 0,
        "brokers": [broker(node_id=i, host="127.0.0.1", port=port, rack=None) for i, port in nodes.items()],
        "cluster_id": "c",
        "controller_id": controller,
        "topics": [topic(error_code=0, name=n, is_internal=False, partitions=p) for n, p in topics.items()],
    }


def client_of(*nodes: KafkaNode) -> BrokerClient:
    return BrokerClient(",".join(f"127.0.0.1:{node.port}" for node in nodes), {})


def test_partitions_are_counted_and_named(make_node: MakeNode) -> None:
    partitions = [partition(i, [0, 1], [0]) for i in range(30)] + [partition(30, [0, 1], [0, 1])]
    topics = {"many": partitions, "gone": [partition(0, [1], [], leader=-1, error=5)]}
    client = client_of(make_node({METADATA: metadata(topics, {0: 1, 1: 2}, controller=1)}))
    state = client.cluster_state()
    assert state.brokers == {0, 1}
    assert state.controller_id == 1
    assert state.partitions == 32
    assert state.under_replicated_count == 31
    assert len(state.under_replicated) == 20
    assert (state.offline, state.offline_count) == (("gone-0",), 1)


@pytest.mark.parametrize("empty", [metadata({}, {}), metadata({}, {0: 1}, controller=-1)])
def test_an_empty_view_is_passed_over_for_another_brokers(make_node: MakeNode, empty: Any) -> None:
    fresh = make_node({METADATA: empty})
    informed = make_node({METADATA: metadata({"t": [partition(0, [0], [0])]})})
    assert client_of(fresh, informed).cluster_state().partitions == 1
    with pytest.raises(ObservationError, match="as yet"):
        client_of(fresh).cluster_state()


def test_a_topic_error_is_no_health(make_node: MakeNode) -> None:
    response, fields = metadata({"t": []})
    fields["topics"][0].error_code = 29
    with pytest.raises(ObservationError, match=r"topic t: TopicAuthorizationFailedError \(29\)"):
        client_of(make_node({METADATA: (response, fields)})).cluster_state()


def test_a_silent_broker_costs_its_time_limit_and_no_more(make_node: MakeNode) -> None:
    silent, other = make_node({METADATA: None}), make_node({METADATA: metadata({})})
    client = client_of(silent, other)
    started = time.monotonic()
    client.cluster_state()
    assert 0.3 <= time.monotonic() - started < 1
    asked = len(silent.asked)
    client.cluster_state()
    assert len(silent.asked) == asked, "the broker that answered is kept"


def test_brokers_that_were_named_once_help_when_bootstrap_is_gone(make_node: MakeNode) -> None:
    other = make_node({})
    first = make_node({METADATA: metadata({}, {0: 1, 1: other.port})})
    other.answers[METADATA] = first.answers[METADATA]
    client = client_of(first)
    client.cluster_state()
    first.close()
    assert client.cluster_state().brokers == {0, 1}
    assert METADATA in other.asked


def test_nobody_there_is_an_error_that_names_each(make_node: MakeNode) -> None:
    one, two = make_node({}), make_node({METADATA: None})
    one.close()
    with pytest.raises(ObservationError, match=rf"127.0.0.1:{one.port}: .*refused.*127.0.0.1:{two.port}: .*timed out"):
        client_of(one, two).cluster_state()


def test_questions_that_waited_for_a_silent_cluster_do_not_wait_for_it_once_more(make_node: MakeNode) -> None:
    silent = make_node({METADATA: None})
    client, started = client_of(silent), time.monotonic()
    with ThreadPoolExecutor(6) as threads:
        errors = [a.exception() for a in [threads.submit(client.cluster_state) for _ in range(6)]]
    assert {type(e) for e in errors} == {ObservationError}
    assert time.monotonic() - started < 1.2, "one after the other they would take three seconds"
    silent.answers[METADATA] = metadata({})
    assert client.cluster_state().brokers, "a later question is put anew"


def configs(*results: tuple[str, int, str | None]) -> Any:
    result = DescribeConfigsResponse.DescribeConfigsResult
    entry = result.DescribeConfigsResourceResult
    plain = {"read_only": False, "config_source": 5, "is_sensitive": False, "synonyms": [], "config_type": 3}
    return DescribeConfigsResponse, {
        "throttle_time_ms": 0,
        "results": [
            result(
                error_code=code,
                error_message=None,
                resource_type=2,
                resource_name=name,
                configs=[]
                if value is None
                else [entry(name="min.insync.replicas", value=value, documentation=None, **plain)],
            )
            for name, code, value in results
        ],
    }


def test_redundancy_compares_the_smallest_replication_factor_with_min_isr(make_node: MakeNode) -> None:
    topics = {
        "one": [partition(0, [0], [0])],
        "fine": [partition(0, [0, 1, 2], [0, 1, 2])],
        "equal": [partition(0, [0, 1], [0, 1])],
        "above": [partition(0, [0, 1], [0, 1])],
        "deleted": [partition(0, [0, 1], [0, 1])],
        "mixed": [partition(0, [0, 1], [0, 1]), partition(1, [0], [0])],
    }
    answers = configs(("fine", 0, "2"), ("equal", 0, "2"), ("above", 0, "3"), ("deleted", 3, None))
    client = client_of(make_node({METADATA: metadata(topics), CONFIGS: answers}))
    assert client.topic_redundancy() == TopicRedundancy(("mixed", "one"), ("above", "equal"))


def test_redundancy_that_may_not_be_read_is_an_error(make_node: MakeNode) -> None:
    topics = {"t": [partition(0, [0, 1], [0, 1])]}
    client = client_of(make_node({METADATA: metadata(topics), CONFIGS: configs(("t", 29, None))}))
    with pytest.raises(ObservationError, match="configuration of topic t: TopicAuthorizationFailed"):
        client.topic_redundancy()


def test_what_all_brokers_say_is_in_sync_is_in_sync(make_node: MakeNode) -> None:
    answers = configs(("orders", 0, "2"), ("lone", 0, "1"))
    second = make_node({})
    first = make_node({})
    nodes = {0: first.port, 1: second.port}
    stale = {
        "orders": [partition(0, [0, 1, 2], [0, 1, 2]), partition(1, [0, 1, 2], [0, 1, 2])],
        "lone": [partition(0, [1], [1])],
    }
    fresh = {
        "orders": [partition(0, [0, 1, 2], [0, 2]), partition(1, [0, 1, 2], [0, 1, 2], leader=2)],
        "lone": [partition(0, [1], [1])],
    }
    for node, topics in ((first, stale), (second, fresh)):
        response, fields = metadata(topics, nodes)
        fields["brokers"][1].rack = "zone-b"
        node.answers |= {METADATA: (response, fields), CONFIGS: answers}
    client = client_of(first)
    found = client.assignments(frozenset({"lone"}))
    three = frozenset({0, 1, 2})
    assert set(found.replicas) == {
        Replicas("orders-0", three, frozenset({0, 2}), 2),
        Replicas("orders-1", three, three, 2),
        Replicas("lone-0", frozenset({1}), frozenset({1}), 1, accepted=True),
    }
    assert found.leaders == {0, 2}
    assert found.zones == {1: "zone-b"}
    second.answers[METADATA] = None
    with pytest.raises(ObservationError, match="1 brokers told their partitions"):
        client.assignments(frozenset())


def test_partitions_with_the_same_replicas_are_one_entry(make_node: MakeNode) -> None:
    node = make_node({})
    topics = {"orders": [partition(i, [0, 1], [0, 1]) for i in range(9)], "gone": [partition(0, [0, 1], [0, 1])]}
    answers = configs(("orders", 0, "1"), ("gone", 3, None))
    node.answers |= {METADATA: metadata(topics, {0: node.port}), CONFIGS: answers}
    found = client_of(node).assignments(frozenset()).replicas
    assert [(each.example, each.min_isr) for each in found] == [("orders-0", 1), ("gone-0", None)]


def test_reassignments_are_listed_or_unknown(make_node: MakeNode) -> None:
    topic = ListPartitionReassignmentsResponse.OngoingTopicReassignment
    ongoing = topic.OngoingPartitionReassignment(
        partition_index=3, replicas=[0], adding_replicas=[1], removing_replicas=[]
    )
    fields = {
        "throttle_time_ms": 0,
        "error_code": 0,
        "error_message": None,
        "topics": [topic(name="t", partitions=[ongoing])],
    }
    node = make_node({METADATA: metadata({}), REASSIGNMENTS: (ListPartitionReassignmentsResponse, fields)})
    client = client_of(node)
    assert client.reassigning_partitions() == ("t-3",)
    fields["error_code"] = UNAUTHORIZED
    with pytest.raises(ObservationError, match="ClusterAuthorizationFailed"):
        client.reassigning_partitions()


def described(operations: set[int], error: int = 0) -> Any:
    return DescribeClusterResponse, {
        "throttle_time_ms": 0, "error_code": error, "error_message": None, "endpoint_type": 1, "cluster_id": "c",
        "controller_id": 0, "brokers": [], "authorized_operations": operations,
    }  # fmt: skip


def test_what_the_principal_may_see_and_do(make_node: MakeNode) -> None:
    topics = metadata({"t": [], "u": []})
    topics[1]["topics"][0].authorized_operations = {8, 10}
    topics[1]["topics"][1].authorized_operations = {8}
    node = make_node({METADATA: topics, CLUSTER: described({8, 10, 11})})
    client = client_of(node)
    assert client.visibility() == Visibility(
        frozenset({"t", "u"}), frozenset({"DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"}), frozenset({"u"})
    )
    node.answers[CLUSTER] = described(set(), UNAUTHORIZED)
    with pytest.raises(ObservationError, match="DescribeCluster answered ClusterAuthorizationFailed"):
        client.visibility()


@pytest.mark.parametrize(
    ("source", "stated"), [(1, {"t": {"segment.bytes": "1000"}}), (4, {}), (5, {})], ids=["topic", "broker", "default"]
)
def test_what_topics_state_themselves_is_read_for_kafka_4(
    make_node: MakeNode, source: int, stated: dict[str, dict[str, str]]
) -> None:
    result = DescribeConfigsResponse.DescribeConfigsResult
    segment = result.DescribeConfigsResourceResult(
        name="segment.bytes", value="1000", config_source=source, is_sensitive=False, config_type=3,
        read_only=False, synonyms=[], documentation=None,
    )  # fmt: skip
    answer = result(error_code=0, error_message=None, resource_type=2, resource_name="t", configs=[segment])
    node = make_node({CONFIGS: (DescribeConfigsResponse, {"throttle_time_ms": 0, "results": [answer]})})
    topics = metadata({"t": [], "hidden": []}, {0: node.port})
    topics[1]["topics"][0].authorized_operations = {8, 10}
    topics[1]["topics"][1].authorized_operations = {8}
    node.answers[METADATA] = topics
    found = client_of(node).settings_for_kafka4()
    assert found.topics == stated
    assert found.hidden_topics == ("hidden",)
    assert found.brokers.keys() == {0}


def test_each_broker_says_itself_what_it_runs_with(make_node: MakeNode) -> None:
    result = DescribeConfigsResponse.DescribeConfigsResult
    entry = result.DescribeConfigsResourceResult

    def answer(error: int = 0) -> Any:
        plain = {"read_only": False, "synonyms": [], "documentation": None}
        configs = [
            entry(name="zookeeper.connect", value="z", config_source=4, is_sensitive=False, config_type=2, **plain),
            entry(name="ssl.key.password", value=None, config_source=2, is_sensitive=True, config_type=9, **plain),
            entry(name="my.plugin", value="1", config_source=3, is_sensitive=False, config_type=0, **plain),
            entry(name="num.io.threads", value="8", config_source=5, is_sensitive=False, config_type=3, **plain),
            entry(
                name="inter.broker.protocol.version",
                value="3.9-IV0",
                config_source=5,
                is_sensitive=False,
                config_type=2,
                **plain,
            ),
        ]
        one = result(error_code=error, error_message=None, resource_type=4, resource_name="0", configs=configs)
        return DescribeConfigsResponse, {"throttle_time_ms": 0, "results": [one]}

    gone, refusing = make_node({}), make_node({CONFIGS: answer(UNAUTHORIZED)})
    first = make_node({CONFIGS: answer()})
    first.answers[METADATA] = metadata({}, {0: first.port, 1: refusing.port, 2: gone.port})
    gone.close()
    seen = client_of(first).broker_settings()
    assert seen[0] == (
        BrokerSetting("zookeeper.connect", "z", SettingSource.STATIC, sensitive=False, known=True),
        BrokerSetting("ssl.key.password", None, SettingSource.DYNAMIC_BROKER, sensitive=True, known=True),
        BrokerSetting("my.plugin", "1", SettingSource.DYNAMIC_DEFAULT, sensitive=False, known=False),
        BrokerSetting("inter.broker.protocol.version", "3.9-IV0", SettingSource.DEFAULT, sensitive=False, known=True),
    )
    assert "ClusterAuthorizationFailed" in str(seen[1])
    assert isinstance(seen[2], Unobserved)


def test_before_2_8_metadata_alone_tells_what_the_principal_may_do_with_the_cluster(
    make_node: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(VERSIONS, CLUSTER)
    topics = metadata({"t": []})
    topics[1]["topics"][0].authorized_operations = {8, 10}
    topics[1]["authorized_operations"] = {8, 11}
    found = client_of(make_node({METADATA: topics})).visibility()
    assert found.cluster_operations == frozenset({"DESCRIBE", "ALTER_CONFIGS"})


def test_before_2_6_no_type_tells_which_settings_kafka_knows(
    make_node: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VERSIONS, CONFIGS, (1, 2))
    node = make_node({CONFIGS: configured({"num.io.threads": "9"})})
    node.answers[METADATA] = metadata({}, {0: node.port})
    (found,) = client_of(node).broker_settings()[0]  # type: ignore[misc]
    assert (found.name, found.known) == ("num.io.threads", True)


def configured(values: dict[str, str]) -> Any:
    """An answer to DescribeConfigs of a broker."""
    result = DescribeConfigsResponse.DescribeConfigsResult
    entry = result.DescribeConfigsResourceResult
    plain = {"read_only": False, "is_sensitive": False, "config_source": 4, "synonyms": [], "documentation": None}
    configs = [entry(name=name, value=value, config_type=0, **plain) for name, value in values.items()]
    one = result(error_code=0, error_message=None, resource_type=4, resource_name="0", configs=configs)
    return DescribeConfigsResponse, {"throttle_time_ms": 0, "results": [one]}


def listed_logs(error: int = 0, **replicas: list[int]) -> Any:
    """An answer to DescribeLogDirs."""
    result = DescribeLogDirsResponse.DescribeLogDirsResult
    topic = result.DescribeLogDirsTopic
    row = topic.DescribeLogDirsPartition
    topics = [
        topic(
            name=n, partitions=[row(partition_index=i, partition_size=1, offset_lag=0, is_future_key=False) for i in p]
        )
        for n, p in replicas.items()
    ]
    one = result(error_code=0, log_dir="/data", topics=topics, total_bytes=1, usable_bytes=1)
    return DescribeLogDirsResponse, {"throttle_time_ms": 0, "error_code": error, "results": [one]}


def test_a_broker_tells_protocol_ids_and_what_no_topic_assigns_to_it(
    make_node: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VERSIONS, LOG_DIRS, (0, 4))
    topics = metadata({"named": [partition(0, [0], [0]), partition(1, [1], [1])], "nameless": [partition(0, [0], [0])]})
    topics[1]["topics"][0].topic_id = UUID(int=7)
    node = make_node({CONFIGS: configured({"inter.broker.protocol.version": "3.9"}), METADATA: topics})
    node.answers[LOG_DIRS] = listed_logs(named=[0, 1], nameless=[0])
    topics[1]["brokers"] = metadata({}, {0: node.port})[1]["brokers"]
    told = client_of(node).topic_ids({0: "uid then", 5: "uid of nobody"})
    assert told[0] == TopicIds("uid then", "3.9", 3, ("nameless",), 1, (LogDir("/data", leftovers=("named-1",)),))
    assert isinstance(told[5], Unobserved)
    node.answers[LOG_DIRS] = listed_logs(UNAUTHORIZED)
    (again,) = client_of(node).topic_ids({0: "uid then"}).values()
    assert isinstance(again, TopicIds)
    assert isinstance(again.log_dirs, Unobserved)
    assert "ClusterAuthorizationFailed" in again.log_dirs.reason


def test_reassignments_are_asked_of_the_controller_in_zookeeper_mode(make_node: MakeNode) -> None:
    def reassignments(error: int) -> Any:
        fields = {"throttle_time_ms": 0, "error_code": error, "error_message": None, "topics": []}
        return ListPartitionReassignmentsResponse, fields

    other, controller = (make_node({REASSIGNMENTS: reassignments(e)}) for e in (NOT_CONTROLLER, 0))
    brokers = metadata({}, {0: other.port, 1: controller.port}, controller=1)
    other.answers[METADATA] = controller.answers[METADATA] = brokers
    client = client_of(other)
    client.cluster_state()  # the connection that is kept is to the broker that is not the controller
    assert client.reassigning_partitions() == ()
    assert controller.asked.count(REASSIGNMENTS) == 1
    controller.close()
    with pytest.raises(ObservationError, match="it is not the controller"):
        client.reassigning_partitions()


def test_each_broker_says_itself_who_is_controller(make_node: MakeNode) -> None:
    gone, other = make_node({}), make_node({METADATA: metadata({}, {0: 1}, controller=2)})
    first = make_node({})
    first.answers[METADATA] = metadata({}, {0: first.port, 1: other.port, 2: gone.port}, controller=0)
    gone.close()
    seen = client_of(first).controller_by_broker()
    assert seen[0] == 0
    assert seen[1] == 2
    assert isinstance(seen[2], Unobserved)
    assert f"broker 2 at 127.0.0.1:{gone.port}" in str(seen[2])


def test_a_broker_that_names_several_controllers_names_none(make_node: MakeNode) -> None:
    """One in migration mode that knows a KRaft controller draws a broker for each answer."""
    node = make_node({})
    node.answers[METADATA] = [metadata({}, {0: node.port}, controller=each) for each in (1, 1, 1, 1, 1, 1, 1, 2)]
    seen = client_of(node).controller_by_broker()
    assert isinstance(seen[0], Unobserved)
    assert "it names several brokers in turn" in str(seen[0])


# ------------------------------------------------------------------------------------------------ controllers


def quorum(error: int = 0, top: int = 0, fetched: Mapping[int, int] | None = None) -> Any:
    topic = DescribeQuorumResponse.TopicData
    state = topic.PartitionData.ReplicaState
    fields = topic.PartitionData(
        partition_index=0,
        error_code=error,
        error_message=None,
        leader_id=3001,
        leader_epoch=5,
        high_watermark=99,
        current_voters=[
            state(replica_id=i, log_end_offset=100 - i % 10, last_fetch_timestamp=(fetched or {}).get(i, -1))
            for i in (3001, 3000)
        ],
        observers=[state(replica_id=0, log_end_offset=90)],
    )
    topics = [topic(topic_name="__cluster_metadata", partitions=[fields])]
    return DescribeQuorumResponse, {"error_code": top, "error_message": None, "topics": topics, "nodes": []}


def quotas(error: int = 0) -> Any:
    entry = AlterClientQuotasResponse.EntryData(error_code=error, error_message="words", entity=[])
    return AlterClientQuotasResponse, {"throttle_time_ms": 0, "entries": [entry]}


def created(error: int = 0) -> Any:
    topic = CreateTopicsResponse.CreatableTopicResult(
        name="kraftbridge-canary-7",
        error_code=error,
        error_message="words",
        num_partitions=1,
        replication_factor=1,
        configs=[],
    )
    return CreateTopicsResponse, {"throttle_time_ms": 0, "topics": [topic]}


def deleted(error: int = 0) -> Any:
    result = DeleteTopicsResponse.DeletableTopicResult(
        name="kraftbridge-canary-7", error_code=error, error_message="words"
    )
    return DeleteTopicsResponse, {"throttle_time_ms": 0, "responses": [result]}


def controllers_of(*nodes: KafkaNode) -> ControllerClient:
    return ControllerClient({3000 + i: node.address for i, node in enumerate(nodes)}, {})


def test_the_leader_is_found_and_remembered(make_node: MakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("CONNECT_SECONDS", "REQUEST_SECONDS", "QUORUM_CALL_SECONDS"):
        monkeypatch.setattr(controllers_module, limit, 60.0)  # a busy machine is no reason to ask another node
    follower, leader = make_node({QUORUM: quorum(NOT_LEADER)}), make_node({QUORUM: quorum()})
    client = controllers_of(follower, leader)
    expected = QuorumState(3001, 5, 99, (VoterState(3000, 100), VoterState(3001, 99)), frozenset({0}))
    assert client.quorum_state() == expected
    assert client.quorum_state() == expected
    assert follower.asked.count(QUORUM) == 1
    client.close()


@pytest.mark.parametrize(
    ("fetched", "silent"),
    [
        ({3001: 9_000, 3000: 8_500}, {3001: 0.0, 3000: 0.5}),
        ({3001: 9_000}, {3001: 0.0, 3000: None}),
        ({3000: 8_500}, {3001: None, 3000: None}),
    ],
)
def test_how_long_a_voter_is_silent_is_told_by_the_leaders_clock(
    make_node: MakeNode, fetched: dict[int, int], silent: dict[int, float | None]
) -> None:
    client = controllers_of(make_node({QUORUM: quorum(fetched=fetched)}))
    assert {voter.id: voter.silent_seconds for voter in client.quorum_state().voters} == silent
    client.close()


def test_without_a_leader_each_controllers_answer_is_told(make_node: MakeNode) -> None:
    follower, silent, gone = make_node({QUORUM: quorum(NOT_LEADER)}), make_node({QUORUM: None}), make_node({})
    gone.close()
    client = controllers_of(follower, silent, gone)
    words = "no controller leads yet.*3000: it does not lead.*3001: .*timed out.*3002: .*refused"
    with pytest.raises(ObservationError, match=words):
        client.quorum_state()


@pytest.mark.parametrize(("error", "top"), [(UNAUTHORIZED, 0), (0, UNAUTHORIZED)])
def test_a_quorum_that_may_not_be_seen_is_an_observation_error(make_node: MakeNode, error: int, top: int) -> None:
    with pytest.raises(ObservationError, match="ClusterAuthorizationFailed"):
        controllers_of(make_node({QUORUM: quorum(error, top)})).quorum_state()


def test_a_controller_that_restarted_is_asked_over_a_new_connection(make_node: MakeNode) -> None:
    node = make_node({QUORUM: quorum()})
    client = controllers_of(node)
    client.quorum_state()
    client._connections._open[client._addresses[3000]]._socket.shutdown(2)
    assert client.quorum_state().leader_id == 3001


def test_the_canary_is_written_by_the_active_controller(make_node: MakeNode) -> None:
    standby = make_node({QUOTAS: quotas(NOT_CONTROLLER), CREATE: created(NOT_CONTROLLER)})
    active = make_node({QUOTAS: quotas(), CREATE: created(), DELETE: deleted()})
    client = controllers_of(standby, active)
    client.write_canary(7, 3)
    client.remove_canary(7)
    assert standby.asked.count(CREATE) == 1
    assert [active.asked.count(key) for key in (CREATE, QUOTAS, DELETE)] == [1, 2, 1]


@pytest.mark.parametrize("deletion", [UNKNOWN_TOPIC, DELETION_DISABLED])
def test_a_canary_may_be_written_and_removed_again(make_node: MakeNode, deletion: int) -> None:
    client = controllers_of(make_node({QUOTAS: quotas(), CREATE: created(TOPIC_EXISTS), DELETE: deleted(deletion)}))
    client.write_canary(7, 3)
    client.remove_canary(7)


def test_a_topic_that_a_policy_forbids_is_a_refusal_in_kafkas_words(make_node: MakeNode) -> None:
    client = controllers_of(make_node({QUOTAS: quotas(), CREATE: created(POLICY_VIOLATION)}))
    with pytest.raises(ActionRefusedError, match=r"creation of topic kraftbridge-canary-7.*words"):
        client.write_canary(7, 3)


@pytest.mark.parametrize(
    ("answer", "served"), [({"t": (0, 0)}, True), ({"t": (UNKNOWN_TOPIC, 0)}, False), ({"t": (0, -1)}, None)]
)
def test_each_broker_tells_itself_whether_it_serves_a_topic(
    make_node: MakeNode, answer: dict[str, tuple[int, int]], *, served: bool | None
) -> None:
    ((error, leader),) = answer.values()
    topic = metadata({"t": [partition(0, [0], [0], leader)]})
    topic[1]["topics"][0].error_code = error
    node = make_node({METADATA: topic})
    topic[1]["brokers"][0].port = int(node.address[1])
    topic[1]["brokers"][0].host = node.address[0]
    told = BrokerClient(":".join(map(str, node.address)), {}).serves_topic("t")[0]
    assert (told is served) if served is not None else isinstance(told, Unobserved)


@pytest.mark.parametrize(
    ("answer", "refused"),
    [(quotas(NOT_CONTROLLER), False), (quotas(UNAUTHORIZED), True), (quotas(TIMED_OUT), False), (None, False)],
)
def test_a_canary_that_was_not_written_is_told(make_node: MakeNode, answer: Any, *, refused: bool) -> None:
    client = controllers_of(make_node({QUOTAS: answer, CREATE: created()}))
    with pytest.raises(ActionError, match="write of the canary quota of user kraftbridge-canary") as caught:
        client.write_canary(7, 3)
    assert isinstance(caught.value, ActionRefusedError) == refused


SUPPORTED = [ApiVersionsResponse.SupportedFeatureKey(name="metadata.version", min_version=1, max_version=21)]


def finalized(level: int, epoch: int) -> dict[str, Any]:
    key = ApiVersionsResponse.FinalizedFeatureKey(name="metadata.version", max_version_level=level, min_version_level=1)
    return {"finalized_features": [key], "finalized_features_epoch": epoch}


def test_features_are_asked_of_every_controller_anew(make_node: MakeNode) -> None:
    ready = make_node({}, supported_features=SUPPORTED, zk_migration_ready=True)
    gone = make_node({})
    gone.close()
    client = controllers_of(ready, gone)
    seen = client.features()
    assert seen[3000] == NodeFeatures({}, {"metadata.version": (1, 21)}, zk_migration_ready=True)
    assert isinstance(seen[3001], Unobserved)
    ready._said |= finalized(21, 3)
    again = client.features()[3000]
    assert isinstance(again, NodeFeatures)
    assert (again.finalized, again.finalized_epoch) == ({"metadata.version": 21}, 3)


def test_features_of_level_0_are_seen_where_the_node_tells_them(make_node: MakeNode) -> None:
    levels = {"metadata.version": (7, 33), "group.version": (0, 1), "kraft.version": (0, 1)}
    supported = [
        ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=low, max_version=high)
        for name, (low, high) in levels.items()
    ]
    seen = controllers_of(make_node({}, supported_features=supported)).features()[3000]
    assert isinstance(seen, NodeFeatures)
    assert seen.supported == levels
    former = make_node({}, supported_features=supported)
    former._versions = VERSIONS | {ApiVersionsResponse.API_KEY: (0, 3)}
    seen = controllers_of(former).features()[3000]
    assert isinstance(seen, NodeFeatures)
    assert set(seen.supported) == {"metadata.version"}


def test_features_are_asked_of_every_broker_anew(make_node: MakeNode) -> None:
    other, gone = make_node({}, supported_features=SUPPORTED, **finalized(20, 7)), make_node({})
    first = make_node({}, supported_features=SUPPORTED, **finalized(21, 9))
    first.answers[METADATA] = metadata({}, {0: first.port, 1: other.port, 2: gone.port})
    gone.close()
    client = client_of(first)
    seen = client.features()
    assert seen[0] == NodeFeatures({"metadata.version": 21}, {"metadata.version": (1, 21)}, finalized_epoch=9)
    assert seen[1] == NodeFeatures({"metadata.version": 20}, {"metadata.version": (1, 21)}, finalized_epoch=7)
    assert isinstance(seen[2], Unobserved)
    other._said |= finalized(21, 10)
    client._of_each._open["127.0.0.1", first.port]._socket.shutdown(2)  # it restarted
    first.answers[METADATA] = metadata({}, {0: first.port, 1: other.port})
    again = client.features()
    assert again[0] == seen[0]
    assert again[1] == NodeFeatures({"metadata.version": 21}, {"metadata.version": (1, 21)}, finalized_epoch=10)
    assert set(again) == {0, 1}
    client.close()


def test_silent_nodes_do_not_use_up_everybodys_time(make_node: MakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_module, "CALL_SECONDS", 0.0)
    monkeypatch.setattr(controllers_module, "QUORUM_CALL_SECONDS", 0.0)
    node = make_node({}, supported_features=SUPPORTED)
    node.answers[METADATA] = metadata({}, {0: node.port})
    broker = client_of(node)
    monkeypatch.setattr(broker, "_ask", lambda _: broker._known.update({0: node.address}))
    for seen in (broker.features()[0], controllers_of(node).features()[3000]):
        assert isinstance(seen, Unobserved)
        assert "not asked, because" in str(seen)


def feature_results(top: int = 0, each: int = 0, words: str | None = None) -> Any:
    result = UpdateFeaturesResponse.UpdatableFeatureResult(
        feature="metadata.version", error_code=each, error_message=words
    )
    fields = {"throttle_time_ms": 0, "error_code": top, "error_message": None, "results": [result]}
    return UpdateFeaturesResponse, fields


@pytest.mark.parametrize(("top", "each"), [(UNAUTHORIZED, 0), (0, 95)])
def test_a_refused_change_of_metadata_version_is_told(make_node: MakeNode, top: int, each: int) -> None:
    client = controllers_of(make_node({FEATURES: feature_results(top, each, "no")}))
    with pytest.raises(ActionRefusedError, match=r"change of metadata.version to 4.0-IV0 \(22\) at"):
        client.update_metadata_version(22, Upgrade.UPGRADE)


def test_a_validation_has_kafkas_own_words(make_node: MakeNode) -> None:
    standby, active = make_node({FEATURES: feature_results(NOT_CONTROLLER)}), make_node({FEATURES: feature_results()})
    client = controllers_of(standby, active)
    assert client.validate_metadata_version(20, Upgrade.SAFE_DOWNGRADE) == FeatureAnswer(
        20, Upgrade.SAFE_DOWNGRADE, accepted=True
    )
    words = "Invalid metadata.version 16. Refusing to perform the requested downgrade because"
    active.answers[FEATURES] = feature_results(0, 95, words)
    assert client.validate_metadata_version(16, Upgrade.SAFE_DOWNGRADE) == FeatureAnswer(
        16, Upgrade.SAFE_DOWNGRADE, accepted=False, words=words
    )


def test_another_feature_is_raised_and_validated_by_its_own_name(make_node: MakeNode) -> None:
    node = make_node({FEATURES: feature_results(0, 95, "no")})
    client = controllers_of(node)
    with pytest.raises(ActionRefusedError, match=r"change of group\.version to 1 at"):
        client.update_metadata_version(1, Upgrade.UPGRADE, "group.version")
    assert client.validate_metadata_version(1, Upgrade.UPGRADE, "group.version") == FeatureAnswer(
        1, Upgrade.UPGRADE, accepted=False, words="no", feature="group.version"
    )


@pytest.mark.parametrize("answer", [feature_results(TIMED_OUT), feature_results(NOT_CONTROLLER), None])
def test_a_validation_without_an_answer_is_unknown(make_node: MakeNode, answer: Any) -> None:
    with pytest.raises(ObservationError, match=r"metadata\.version"):
        controllers_of(make_node({FEATURES: answer})).validate_metadata_version(20, Upgrade.UPGRADE)


def test_a_node_that_would_overlook_validate_only_is_not_asked(make_node: MakeNode) -> None:
    old = make_node({FEATURES: feature_results()})
    old._versions = {**VERSIONS, FEATURES: (0, 0)}
    with pytest.raises(ObservationError, match="UpdateFeatures up to version 0 only, 1 is needed"):
        controllers_of(old).validate_metadata_version(20, Upgrade.UPGRADE)
    assert FEATURES not in old.asked


# ------------------------------------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"security.protocol": "TLS"}, "security.protocol TLS is unknown"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER is not supported"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "needs username and password"),
        ({"security.protocol": "SSL", "ssl.truststore.certificates": "rubbish"}, "TLS settings cannot be used"),
        (
            {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": "/nowhere"},
            "ssl.truststore.location /nowhere is not opened here",
        ),
    ],
)
def test_settings_that_cannot_be_followed_are_refused(properties: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidSpecError, match=words):
        Security.from_properties(properties)


@pytest.mark.parametrize(
    ("options", "password"),
    [
        ('username="ann" password="a;b c"', "a;b c"),
        ("username=ann password=plain", "plain"),
        ("password='it is' username='ann'", "it is"),
        (r'username="ann" password="a\"b\\c"', r'a"b\c'),
    ],
)
def test_jaas_options_are_read_as_java_reads_them(options: str, password: str) -> None:
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f"org.apache.kafka.common.security.plain.PlainLoginModule required {options};",
    }
    security = Security.from_properties(properties)
    assert (security.username, security.password) == ("ann", password)
    assert password not in repr(security)


def test_addresses_are_split() -> None:
    assert host_ports("kafka-0.kafka:9092, [fd00::1]:9093") == (("kafka-0.kafka", 9092), ("fd00::1", 9093))


def test_the_systems_certificates_are_loaded_once() -> None:
    """Each migration whose cluster does not answer opens its clients anew again and again; loading takes 30 ms of processor time."""
    first, second = (Security.from_properties({"security.protocol": "SSL"}).tls for _ in range(2))
    assert first is not None
    assert first is second
    unchecked = Security.from_properties({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}).tls
    assert unchecked is not None
    assert (first.check_hostname, unchecked.check_hostname) == (True, False)


def test_a_large_cluster_that_is_silent_is_told_in_a_few_words() -> None:
    """Six brokers on three nodes filled a status message with their addresses, twice."""
    client = BrokerClient(",".join(f"127.0.0.{host}:1" for host in range(1, 61)), {})
    with pytest.raises(ObservationError) as told:
        client.cluster_state()
    assert str(told.value).startswith("brokers 127.0.0.1:1, 127.0.0.2:1 and 58 more: none answered: ")
    assert str(told.value).endswith(" and 58 more")
    assert len(str(told.value)) < 400
