"""The kopf handlers. Only this package imports kopf. Handlers are thin and call ``services``."""

from kraftbridge.handlers import migration, startup

__all__ = ["migration", "startup"]
