"""Main application file for ``spark-submit``: summarizes raw samples as ``python -m benchmarks summary`` does.

``PYTHONPATH=operator spark-submit benchmarks/quorum/spark_submit.py s3a://bucket/samples --output s3a://bucket/summary``, from the top of the
repository. Executors need no code of ours: the aggregation uses Spark's own expressions only.
"""

import sys
from pathlib import Path

# Python puts the folder of a script first on the path, where its modules would shadow others of the same name.
_FOLDER = Path(__file__).resolve().parent
sys.path[:] = [str(_FOLDER.parents[1]), *(entry for entry in sys.path if Path(entry or ".").resolve() != _FOLDER)]

from benchmarks.command_line import summary_main  # noqa: E402 - after the path is set

if __name__ == "__main__":
    sys.exit(summary_main())
