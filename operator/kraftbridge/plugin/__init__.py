"""``kubectl kraftbridge``: shows and changes a migration on the terminal.

It uses only the API server, and is not in the images.
"""
