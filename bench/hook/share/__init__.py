"""How exactly compute shares hold, how programs progress under them, and their cost.

`figures` defines the figures, `place` and `tenants` set up the GPUs and the programs, and the other modules hold the
cases. `task/` is the tenants' program.
"""
