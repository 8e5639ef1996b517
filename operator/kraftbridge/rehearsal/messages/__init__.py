"""Definitions of the two requests by which a broker registers at a controller, as Kafka's own build has them."""
