"""Fixtures that start the real servers: NATS, Valkey, and a Kubernetes API server; none is ever faked."""
