"""What goes in and out of a step, as types: spec, status, observation, decision; and the report of the verification."""
