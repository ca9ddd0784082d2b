"""The placer's interfaces: its HTTP API and client, its requests over NATS, and its keys in Redis."""
