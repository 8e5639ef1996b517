"""`python -m kraftbridge.rehearsal`."""

import sys

from kraftbridge.rehearsal.command_line import main
from kraftbridge.rehearsal.isolation import isolate

if __name__ == "__main__":
    sys.exit(main(not_isolated=isolate()))
