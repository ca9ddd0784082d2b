"""Enforcement: `lib`, the C library inside each process, and `broker`, its partner on the node."""
