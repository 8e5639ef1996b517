"""``make e2e-nodes``: migrations on three nodes, each with a trouble of a node in one phase; see ``docs/nodes.md``."""

from e2e.harness.nodes_command import main

if __name__ == "__main__":
    raise SystemExit(main())
