"""Judging a dry start: reading what the agent reports, and comparing configurations. Pure."""
