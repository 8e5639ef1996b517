"""``python -m e2e.demo``: migrate a ZooKeeper-based Kafka cluster with active clients to KRaft."""

import sys

from e2e.harness.demo import main

if __name__ == "__main__":
    sys.exit(main())
