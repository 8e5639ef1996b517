"""Compares the rows of the sources and settles entities that are in flight."""
