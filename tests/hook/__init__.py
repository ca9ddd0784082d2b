"""Enforcement: the library in a process, and the broker on the node."""
