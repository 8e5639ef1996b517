"""``python -m e2e.bench``: migration time against the bare scripted procedure, interleaved pairs."""

from e2e.harness.compare import main

if __name__ == "__main__":
    main()
