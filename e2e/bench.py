"""``python -m e2e.bench``: migration time compared with the scripted procedure, in interleaved pairs."""

from e2e.harness.compare import main

if __name__ == "__main__":
    main()
