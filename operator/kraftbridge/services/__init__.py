"""The reconciliation loop: observe, decide, publish, act."""
