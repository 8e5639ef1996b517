"""How a client reaches Kafka: the wire protocol, security and name resolution; for the operator and the verifier."""
