"""What comes from outside is bounded and read here: bytes, time, depth, paths, JSON."""
