"""Evaluates a dry start: parses the agent's reports and compares configurations. Pure."""
