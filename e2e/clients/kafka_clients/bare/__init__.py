"""The migration of KIP-866 as a script would do it by hand: the yardstick for the operator.

Same gates as the operator, no verification of the data, no way back, and no memory: killed, it cannot go on.
"""
