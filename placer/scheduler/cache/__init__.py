"""The cluster as decisions read it: the nodes, the pods on each, and the ledger of promises.

`cache` counts and frees together; `bookings` are the GPUs of bound pods, and `comparer` compares them with the API
server. `labels` finds the nodes that a pod names. Nothing here decides or writes.
"""
