"""The links between the GPUs of a node, and the sets of GPUs that they make near.

`links` has the levels and their costs, `hardware` reads them from a node's event.
`tree` is Gaia's access cost tree with its three schedulers as printed. `sets` chooses by all pairs of a set, and the
policy `topology` uses it.
"""
