"""`python -m kraftbridge.verification`."""

import sys

from kraftbridge.verification.command_line import main

if __name__ == "__main__":
    sys.exit(main())
