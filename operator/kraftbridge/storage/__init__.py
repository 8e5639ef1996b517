"""The outside world, one module each; `ports` is what the services see of it."""
