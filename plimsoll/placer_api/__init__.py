"""The placer seen from outside: its HTTP rows, its requests over NATS, and its keys in Redis."""
