"""`python -m kraftbridge.rehearsal`."""

import sys

from kraftbridge.rehearsal.command_line import main

if __name__ == "__main__":
    sys.exit(main())
