"""`python -m kraftbridge.verification`, and the main application file for `spark-submit` and the Spark operator.

`mainApplicationFile: local:///…/kraftbridge/verification/__main__.py`,
`arguments: ["run", "--configmap", "NAMESPACE/NAME"]`.
"""

import sys
from pathlib import Path

# A script's own directory comes first on the path. Modules here must not shadow other modules.
_FOLDER = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != _FOLDER]

from kraftbridge.verification.command_line import main  # noqa: E402 - after the path is set right

if __name__ == "__main__":
    sys.exit(main())
