"""``python -m kraftbridge.fence``."""

import sys

from kraftbridge.fence.command_line import main

if __name__ == "__main__":
    sys.exit(main())
