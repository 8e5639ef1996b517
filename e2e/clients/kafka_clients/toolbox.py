"""Wait for SIGTERM: keeps a pod alive for ``kubectl exec``. PID 1 ignores signals that it has no handler for."""

import signal
import sys

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
signal.pause()
