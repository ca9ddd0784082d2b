"""The placer beside kube-scheduler on one real API server, and its decisions in process at 20 000 nodes.

`ground` starts the servers, `objects` makes nodes, pods and reports, `sides` starts a scheduler, `binds` watches what
it does, `rounds` runs both schedulers in turn, `starved` mixes hopeless pods with placeable ones, `replay` decides in
process, `keys` names the figures of a whole run.
"""
