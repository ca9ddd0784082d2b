"""How exactly compute shares hold, how programs progress under them, and their cost.

`figures` defines the figures. `shared_node` and `tenants` set up the GPUs and the programs, `task/` is the tenants'
program, and the other modules hold the cases.
"""
