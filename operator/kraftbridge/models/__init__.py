"""Types of the inputs and outputs of a step (spec, status, observation, decision), and a verification's report."""
