"""The verification benchmark: each figure of the verification beside a baseline."""
