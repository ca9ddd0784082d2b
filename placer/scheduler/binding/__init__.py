"""Writes that place pods: a plan to the API server, and the end of an earlier leader's late writes.

`cycle` is the binding cycle of a pod, `volumes` the writes for its claims, and `binding` its one write. `scope` has
the pods to which the leader may be writing, and `fence` makes the writes of an earlier leader fail. What always
holds: node and GPUs are one write.
"""
