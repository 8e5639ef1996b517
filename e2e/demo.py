"""``python -m e2e.demo``: a ZooKeeper-based Kafka cluster walks to KRaft, with its clients at work."""

import sys

from e2e.harness.demo import main

if __name__ == "__main__":
    sys.exit(main())
