"""A hundred brokers of 200,000 partitions, asked as the operator asks them."""
