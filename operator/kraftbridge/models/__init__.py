"""Types of the inputs and outputs of a step: spec, status, observation and decision; and the report of a verification."""
