"""The forward phases, one module each. `kraftbridge.models.phase.FORWARD` states their order."""
