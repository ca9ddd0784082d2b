"""Fixtures that start the real servers: NATS, Valkey, and a Kubernetes API server. No test fakes one."""
