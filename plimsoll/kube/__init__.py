"""Kubernetes as more than one part needs it: models of the few fields we read, transport, credentials,
Lease, reflector.

The generated client serves as authenticated transport only: its typed decoding is two orders slower than ours, and
its watch loses events. Calls that one part alone needs (bind, events) stay in that part.
"""
