"""The phases of the way forward, one module each, in the order of `FORWARD`."""
