"""Pure builders: Kubernetes objects from spec and facts."""
