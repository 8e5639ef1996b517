"""Request the election of the preferred leader of every partition, and print the result as JSON. The controller performs it."""

import json
import time

from confluent_kafka.admin import AdminClient
from kafka.errors import KafkaError

from kafka_clients.cluster import WireAdmin, confluent_admin

TIMEOUT_S = 60
PREFERRED = 0


def unpreferred(admin: AdminClient) -> list[str]:
    """Return the partitions that another broker than the first replica leads."""
    topics = admin.list_topics(timeout=10).topics
    return sorted(
        f"{name}-{number}"
        for name, topic in topics.items()
        for number, p in topic.partitions.items()
        if p.leader != p.replicas[0]
    )


def main() -> None:
    admin = confluent_admin()
    before = unpreferred(admin)
    failed = ""
    try:
        # confluent-kafka 2.16 cannot parse the arguments of its own elect_leaders.
        WireAdmin().elect_leaders(PREFERRED, timeout_ms=30_000)
    except KafkaError as error:
        failed = f"{type(error).__name__}: {error}"[:200]
    deadline = time.monotonic() + TIMEOUT_S
    while (after := unpreferred(admin)) and time.monotonic() < deadline:
        time.sleep(0.5)
    print(json.dumps({"elected": len(before) - len(after), "left": after[:5], "failed": failed}))


if __name__ == "__main__":
    main()
