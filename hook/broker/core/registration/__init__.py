"""Pods that are registered with the broker: checks, admission, lines, and changes of lines."""
