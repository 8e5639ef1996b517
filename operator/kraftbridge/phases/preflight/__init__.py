"""The checks of preflight. Each makes findings."""
