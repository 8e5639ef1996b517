"""Observation: reads the outside world into the types that `decide` takes."""
