"""The cluster as decisions read it: the nodes, the load of each, and the ledger of promises.

`cache` books and frees together; `bookings` are the GPUs of bound pods, and `drift` compares them with the API
server. `labels` finds the nodes that a pod names. Nothing here decides or writes.
"""
