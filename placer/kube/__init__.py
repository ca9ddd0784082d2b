"""The placer's front end for Kubernetes: a scheduler for pods with `schedulerName: plimsoll`.

Here: the order in which pods are tried (`queue`, with `kinds` and `parking` for pods that fit nowhere), the changes
that could help such pods (`hints`, `wakeups`) and the reasons that people get (`refusals`), the load of every node
(`cluster`), the GPU bookings of bound pods (`bookings`) and their comparison with the API server (`drift`), the one
write that places (`binding`), within all that carries out a plan (`committer`), the end of an earlier leader's late
writes (`scope`, `fence`), the reports of results (`telling`; for the API server `record`, with `pod_events`),
persistent volumes (`volumes`), features that are refused by name (`unhandled`), rules about other pods (`pod_rules`,
from `domains` for a pod's own rules and `antiaffinity` for those of pods that already have a node), one pod as its
decision reads it (`wanted`), the decision (`choice`) and its explanation to people (`explain`), resizes (`resize`)
and the tickets for them (`resize_tickets`), the loop over all (`frontend`), and the answers to a kube-scheduler that
stands in front (`extender`).

Preemption: the pods that have a node (`occupants`) and the disruption budgets (`budgets`), the reasons that the end
of pods can lift (`liftable`), one node without some of its pods (`trial`), the cheapest victims on a node (`victims`)
and in the cluster (`victim_search`), the room that is held meanwhile (`nominations`), the writes
(`preemption_writes`, in their order: `preemption_orders`), the pods that never end (`stuck`), and the course of it
all (`preempting`).

Not here: the choice of a GPU (`placer.core`), and reports (`placer.reports`, `placer.scores`).

What always holds: no pod is bound before all pods, nodes and namespaces, and the nodes' reports, were read once. Node
and GPUs are one write. Every pod with a node counts, whichever scheduler placed it.

Several placers may run; only the one that holds a Lease places and resizes (`plimsoll.kube.lease`). A placer that is
stopped between its last look at the lease and the system call of its write, and goes on after another took over, can
still send that one write, and the network may deliver a write late. Such a write fails: the Lease names the pods to
which its holder may be writing (`scope`), and the next one changes them first (`fence`).

Limits: pods that another scheduler places at the same moment may take the same CPU; the kubelet then fails the later
one. A scheduler that does not read `status.nominatedNodeName` of pods that are not its own, such as kube-scheduler,
may take room that is held here. Through the extender it does not, for pods with GPUs.

The rights that it needs stand in the chart, each with its reason: `deploy/chart/templates/placer/rbac.yaml`. A test
shows that they are enough, and that each is used.
"""
