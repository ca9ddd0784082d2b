"""The placer beside kube-scheduler on one real API server, and its decisions in process at 20 000 nodes.

`servers` starts the servers, `objects` makes nodes, pods and reports, and `schedulers` starts a scheduler, whose work
`binds` watches. `rounds` runs both schedulers in turn, `starved` mixes hopeless pods with placeable ones, and
`replay` decides in process. `keys` names the figures of a whole run.
"""
