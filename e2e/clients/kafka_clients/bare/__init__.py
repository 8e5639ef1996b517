"""The migration of KIP-866 as a script: the baseline for the operator.

It uses the same gates as the operator, verifies no data, cannot roll back, and cannot resume after it was killed.
"""
