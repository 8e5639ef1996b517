"""Wire protocol, client security and name resolution of Kafka clients, for the operator and the verifier."""
