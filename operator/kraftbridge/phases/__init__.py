"""The pure core: what to do next, decided from spec, status and observation."""
