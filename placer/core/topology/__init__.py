"""The links between the GPUs of a node, and the sets of GPUs that they make near.

`links` has the levels and their costs, and `hardware` reads the links from a node's event. `sets` chooses by all
pairs of a set; the policy `topology` chooses by it (`placer.core.policies.best_gpus`), and bounds nodes by it
(`topology_table`). Gaia's scheduler as printed is in `simulator.gaia.tree`.
"""
