"""Main application file for `spark-submit`: the aggregation of raw samples, as `kraftbridge bench summary`.

`spark-submit …/kraftbridge/benchmark/main.py s3a://…/samples --output s3a://…/summary`.
"""

import sys
from pathlib import Path

# A script's own folder comes first on the path; modules here must not shadow anybody else's.
_FOLDER = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != _FOLDER]

from kraftbridge.benchmark.command_line import summary_main  # noqa: E402 - after the path is set right

if __name__ == "__main__":
    sys.exit(summary_main())
