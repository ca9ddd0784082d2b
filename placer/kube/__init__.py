"""Kubernetes' front end of the placer: a scheduler for pods with `schedulerName: plimsoll`.

Here: which pod is tried when (`queue`), what every node has left (`cluster`), the one write that places
(`binding`), what is told (`record`), what is refused by name (`unhandled`), whom pods that are there keep out
(`antiaffinity`), one pod's decision (`choice`), and the loop over them (`frontend`).
Not here: which GPU is best (`placer.core`), and reports (`placer.reports`, `placer.scores`).

What always holds: nothing is bound before all pods, all nodes and the nodes' reports were seen once; node and
GPUs are one write; every pod with a node counts, whoever placed it.

Limits: a single replica (two would not bind a pod twice, as the API server binds once, but could overfill a GPU
between them); no preemption; CPU and memory are counted as requested in the spec, not as resized in place; pods that
another scheduler places at the same moment may take the same CPU, and the kubelet fails the later one.

Rights needed, all cluster-wide:

- pods: get, list, watch, patch (the annotation of a resize)
- pods/binding: create
- pods/status: patch
- nodes: get, list, watch
- events.k8s.io events: create, patch
"""
