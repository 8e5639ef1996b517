"""The loop and its hands: observe, decide, publish, act."""
