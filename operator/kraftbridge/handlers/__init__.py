"""kopf's side: the only package that imports it. Handlers are thin; what they call is in ``services``."""

from kraftbridge.handlers import migration, startup

__all__ = ["migration", "startup"]
