"""Comparison of what the sources read, and how entities in flight are settled."""
