"""The metadata log: files, record batches, decoding, replay, and the entities of the resulting image."""
