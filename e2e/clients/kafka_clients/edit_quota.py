"""Plant a quota that Kafka does not know in ZooKeeper, as an old tool or a typing error would, or take it out again."""

import argparse
import json

from kazoo.client import KazooClient

PATH, QUOTA = "/config/users/trapped", "foo_rate"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("plant", "mend"))
    parser.add_argument("connect", help="the brokers' zookeeper.connect, with its chroot")
    arguments = parser.parse_args()
    config = {QUOTA: "1"} if arguments.what == "plant" else {}
    client = KazooClient(arguments.connect)
    client.start(20)
    try:
        client.ensure_path(PATH)
        client.set(PATH, json.dumps({"version": 1, "config": config}).encode())
    finally:
        client.stop()
        client.close()
    print(json.dumps(PATH))


if __name__ == "__main__":
    main()
