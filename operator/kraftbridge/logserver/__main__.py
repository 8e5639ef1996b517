"""`python -m kraftbridge.logserver`."""

import sys

from kraftbridge.logserver.command_line import main

if __name__ == "__main__":
    sys.exit(main())
