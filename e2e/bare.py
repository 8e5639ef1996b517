"""``python -m e2e.bare``: the bare scripted migration, the yardstick for the operator."""

import sys

from e2e.harness.bare import main

if __name__ == "__main__":
    sys.exit(main())
