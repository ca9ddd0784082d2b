"""The links between the GPUs of a node, and the sets of GPUs that they make near.

`links` has the levels and their costs, and `hardware` reads the links from a node's event. `sets` chooses by all
pairs of a set: the policy `topology` takes its choice (`choice`), and bounds nodes by it (`table`). Gaia's scheduler
as printed is in `simulator.gaia.tree`.
"""
