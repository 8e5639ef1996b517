"""``kubectl kraftbridge``: a migration on the terminal. Talks to the API server only; not in the images."""
