"""Set dynamic settings of all brokers (``name=value``), or delete them (``name=``), and print them as JSON."""

import argparse
import json

from kafka_clients.cluster import WireAdmin, insist


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs="+", metavar="name=value")
    pairs = (setting.partition("=") for setting in parser.parse_args().settings)
    values = {name: value or None for name, _, value in pairs}

    def alter(wire: WireAdmin) -> None:
        wire.set_broker_configs("", values)

    insist(alter)
    print(json.dumps(values))


if __name__ == "__main__":
    main()
