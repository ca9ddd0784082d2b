"""The outbox on disk."""
