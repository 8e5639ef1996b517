"""Actions: executes what `decide` returned."""
