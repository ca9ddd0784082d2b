"""Kubernetes as more than one part needs it: models of the few fields we read, transport, reflector.

The generated client serves as authenticated transport only; its typed decode is two orders slower than ours
and its watch loses events. What one part alone needs (bind, lease, events) stays in that part.
"""
