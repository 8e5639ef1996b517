"""Preflight: what stands in the way of a migration, as findings."""
