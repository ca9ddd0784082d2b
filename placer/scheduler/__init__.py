"""The Kubernetes scheduler of pods with `schedulerName: plimsoll`, in the words of kube-scheduler.

`scheduler` is the scheduling cycle on one page, and its table says where each step is. `framework` is what a plugin
may implement, `plugins` are the rules of placement by their names in Kubernetes, and `profile` lists them. What
Reserve, PreBind and PostFilter do stands where it happens: in `binding` and `preemption`.

| here | in `pkg/scheduler` |
| --- | --- |
| `scheduler`, `schedule_pod` | `schedule_one.go`: the scheduling cycle, and the choice of a node |
| `binding` | the binding cycle: PreBind, Bind, PostBind |
| `preemption` | `framework/preemption`, and the plugin DefaultPreemption |
| `queue` | `backend/queue`: active, backoff and unschedulable pods, queueing hints |
| `cache`, `node_info` | `backend/cache`, `NodeInfo`: assume and forget; nominated pods are in `pods.nominator` |
| `pods` | `PodInfo`, and the pods that are refused before a cycle |
| `event_handlers` | `eventhandlers.go`: what follows from each change that the watches show |
| `failures` | the failure handler: the diagnosis that pods of one signature share |
| `verdicts` | the node statuses of a diagnosis, kept for each signature |
| `dry_run` | the dry run of preemption: a node without some of its pods |
| `quotas` | nothing: ResourceQuotas and LimitRanges are checked at admission, and here again after a resize |
| `reporting` | events, conditions, and results on the bus |

Not here: the GPUs of a node (`placer.core`), resizes (`placer.resize`), relocation (`placer.relocation`), the answers
to a kube-scheduler that stands in front (`placer.extender`), and what wires and runs all of it (`placer.kube`).

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
