"""The placer's front end for Kubernetes: a scheduler for pods with `schedulerName: plimsoll`.

Here: the lifecycle (`app`), the parts wired together (`parts`), the loop over all (`frontend`), the watches and what
they show (`event_handlers`), the attempts (`attempts`), and the decision on one pod (`scheduling`).
Folders hold the rest: the pods (`pods`), the cluster that decisions read (`cache`), the rules of placement by their
Kubernetes names and preemption (`plugins`), the order of tries (`queue`), the reasons why pods wait (`failures`),
writes that place (`binding`), relocation (`relocation`), resizes (`resize`), reports to people (`reporting`), and the
answers to a kube-scheduler that stands in front (`extender`). No two folders import each other.

Not here: the choice of a GPU (`placer.core`), and reports (`placer.intake.reports`, `placer.stores.scores`).

What always holds: no pod is bound before all pods, nodes and namespaces, and the nodes' reports, were read once. Node
and GPUs are one write. Every pod with a node counts, whichever scheduler placed it.

Several placers may run; only the one that holds a Lease places and resizes (`plimsoll.kube.lease`). A placer that is
stopped between its last look at the lease and the system call of its write, and goes on after another took over, can
still send that one write, and the network may deliver a write late. Such a write fails: the Lease names the pods to
which its holder may be writing (`binding.scope`), and the next one changes them first (`binding.fence`).

Limits: pods that another scheduler places at the same moment may take the same CPU; the kubelet then fails the later
one. A scheduler that does not read `status.nominatedNodeName` of pods that are not its own, such as kube-scheduler,
may take room that is held here. Through the extender it does not, for pods with GPUs.

The rights that it needs stand in the chart, each with its reason: `deploy/chart/templates/placer/rbac.yaml`. A test
shows that they are enough, and that each is used.
"""
