"""What runs in other pods than the operator's: a copy's fence, the server of a log, credentials, restored volumes."""
