"""Print the metadata of a cluster as JSON with sorted keys, so that two inventories can be compared.

It asks the brokers only, through their public API, so it is independent of ZooKeeper, of the metadata log and of
the migration. Topics are identified by id and name.
"""

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote
from uuid import UUID

from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.errors import IncompatibleBrokerVersion

from kafka_clients.cluster import BROKER_RESOURCE, TOPIC_RESOURCE, WireAdmin, confluent_admin


def topic_id(topic: dict[str, Any]) -> str | None:
    """Return a topic's id; None with a protocol before 2.8, which has none."""
    known = str(topic.get("topic_id"))
    return None if known in {"None", str(UUID(int=0))} else known


def none_before(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return an answer; nothing from a release without that request, to which nobody could add any either."""
    try:
        return ask()
    except IncompatibleBrokerVersion:
        return {}


def inventory(wire: WireAdmin, *, acls_too: bool = True) -> dict:
    """Return topics, configs, quotas, SCRAM credentials and ACLs as the brokers serve them."""
    topics = {topic["name"]: topic for topic in wire.describe_topics()}
    # The answer to DescribeCluster of Kafka before 3.7 lacks what the other client wants to take out of it.
    brokers = sorted(confluent_admin().list_topics(timeout=20).brokers)
    configs = wire.dynamic_configs(TOPIC_RESOURCE, sorted(topics))
    broker_configs = wire.dynamic_configs(BROKER_RESOURCE, [""])
    for broker in brokers:
        broker_configs |= wire.dynamic_configs(BROKER_RESOURCE, [str(broker)], node_id=broker)
    everything = ACLFilter(
        None,
        None,
        ACLOperation.ANY,
        ACLPermissionType.ANY,
        ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
    )
    acls = wire.describe_acls(everything)[0] if acls_too else []
    return {
        "brokers": brokers,
        "topics": {
            name: {
                "id": topic_id(topic),
                "configs": configs[name],
                "partitions": {
                    str(partition["partition_index"]): sorted(partition["replica_nodes"])
                    for partition in topic["partitions"]
                },
            }
            for name, topic in topics.items()
        },
        "broker_configs": {name or "<default>": values for name, values in broker_configs.items()},
        "quotas": none_before(wire.quotas),
        "scram": {
            # Kafka 2.8 answers with users' names as ZooKeeper spells them.
            unquote(user): sorted(
                f"{info['mechanism'].name}/{info['iterations']}" for info in found["credential_infos"]
            )
            for user, found in none_before(wire.describe_user_scram_credentials).items()
        },
        "acls": sorted(
            " ".join(
                [
                    acl.permission_type.name,
                    acl.principal,
                    acl.host,
                    acl.operation.name,
                    acl.resource_pattern.resource_type.name,
                    acl.resource_pattern.pattern_type.name,
                    repr(acl.resource_pattern.resource_name),
                ]
            )
            for acl in acls
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without-acls", action="store_true", help="for a cluster without an authorizer")
    arguments = parser.parse_args()
    json.dump(inventory(WireAdmin(), acls_too=not arguments.without_acls), sys.stdout, sort_keys=True, indent=1)


if __name__ == "__main__":
    main()
