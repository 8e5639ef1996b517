"""``python -m e2e.bare``: the scripted migration, the baseline for the operator."""

import sys

from e2e.harness.bare import main

if __name__ == "__main__":
    sys.exit(main())
