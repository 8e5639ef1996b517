"""``make e2e-matrix``: run what is missing of the matrix fault by phase, on the embedded Kubernetes; see ``docs/faults.md``."""

from e2e.harness.matrix_command import main

if __name__ == "__main__":
    raise SystemExit(main())
