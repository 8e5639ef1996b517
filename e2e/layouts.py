"""``make e2e-layouts VENDOR=DIR``: real charts and real entrypoints, each migrated or refused; see ``docs/layouts.md``."""

from e2e.harness.layouts_command import main

if __name__ == "__main__":
    raise SystemExit(main())
