"""Change the leader epoch of a partition in ZooKeeper without Kafka's knowledge, as a lost dual-write or a manual change would."""

import argparse
import json

from kazoo.client import KazooClient

TOPIC, PARTITION, MORE = "wide-00", 0, 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("connect", help="the brokers' zookeeper.connect, with its chroot")
    client = KazooClient(parser.parse_args().connect)
    client.start(20)
    try:
        path = f"/brokers/topics/{TOPIC}/partitions/{PARTITION}/state"
        state = json.loads(client.get(path)[0])
        state["leader_epoch"] += MORE
        client.set(path, json.dumps(state, separators=(",", ":")).encode())
    finally:
        client.stop()
        client.close()
    print(json.dumps(f"{TOPIC}-{PARTITION}"))


if __name__ == "__main__":
    main()
