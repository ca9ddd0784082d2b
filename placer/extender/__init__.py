"""The extender: lets a stock kube-scheduler place pods on GPUs, through the placer's own ledger (gpushare's way).

kube-scheduler does everything but GPUs. It asks over HTTP which nodes have GPUs for a pod, which of them are better,
and then has the placer bind the pod. What always holds: both front ends decide on one event loop and book in one
ledger, so no GPU is given to a pod of each. Nothing is held between filter and bind: the GPUs are decided at bind.
A bind writes node and GPUs in one Binding, or nothing.

`extender` has the protocol's verbs: `demand` reads a pod, `fits` has the nodes' answers, and `binds` carries out
binds and keeps the pods that may be bound. `wire` has the protocol's types; `http` serves them, and `tls` protects
the port.
"""
