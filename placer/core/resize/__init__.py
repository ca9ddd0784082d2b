"""Changing what a running container has of its GPUs: the change itself, the room for it, and its registration."""
