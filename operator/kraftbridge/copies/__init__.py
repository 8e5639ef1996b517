"""Copies of brokers' pods: which ones a dry start makes, and what they show."""
