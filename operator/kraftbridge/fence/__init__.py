"""Runs inside the pods of a dry start: proves that a pod reaches nothing, and prepares a copy's directories. It needs only Python."""
