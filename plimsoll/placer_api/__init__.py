"""The placer's interfaces: its HTTP API and client, its answers to resizes, and its keys in Redis."""
