"""The cluster as decisions read it: the nodes, the load of each, and the ledger of promises.

`cache` books and frees together; `bookings` are the GPUs of bound pods, and `drift` compares them with the API
server. `pod_rules` and `rule_check` answer for the rules about other pods, `node_wishes` for wishes, `labels` finds
the nodes that a pod names, and `trial` tries a pod on a node without some of its pods. Nothing here decides or
writes.
"""
