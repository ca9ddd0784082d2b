"""The plan of a pod on one node: the GPUs for its containers, or the reasons why the node will not do.

`plan_on` plans on one node, and reads nothing but its arguments. The caller books the plan before awaiting anything.
"""

from dataclasses import replace

from placer.core.assignment import assigned, rooms_on
from placer.core.ledger import Ledger
from placer.core.plan import Plan, judged
from placer.core.policies.policy import Policy, PolicyError
from placer.core.policy_context import NO_ROOMS, Context, Request, Rooms
from placer.core.reasons import Reason, unhealthy
from placer.core.refusal import Refusal, on_no_gpu
from placer.core.room import SHARERS_PER_GPU
from placer.core.view import GpuView, NodeView
from plimsoll.contract import AFFINITY
from plimsoll.demand import PodDemand
from plimsoll.lifespan import peak
from plimsoll.part.errors import InputError


def check_supported(demand: PodDemand) -> None:
    """Refuse the demands that no policy handles, so that no pod is placed as if it had not made them.

    Raises:
        InputError: the pod makes such a demand; the message names it.
    """
    several = next((one for one in demand.containers if one.gpus > 1), None)
    named = demand.gpu_id or demand.gpu_name
    if named is not None and several is not None:
        problem = f"names one GPU and container {several.container} asks for {several.gpus}"
        raise InputError("metadata.annotations[plimsoll.dev/gpu-id]", named, problem, "ask for 1 GPU")
    label = demand.locality.stated.affinity
    if label is not None and several is not None:
        problem = f"names one GPU and container {several.container} asks for {several.gpus}"
        raise InputError(f"metadata.annotations[{AFFINITY}]", label, problem, "ask for 1 GPU")


def plan_on(
    request: Request,
    node: NodeView,
    ledger: Ledger,
    policy: Policy,
    rooms: Rooms = NO_ROOMS,
) -> Plan | Refusal:
    """Plan on one node, see `_plan_in_pool`.

    A refusal says whether one more GPU in the pool would do, and which GPUs of the node are unhealthy; or that the
    policy failed.
    """
    try:
        return _plan_on(request, node, ledger, policy, rooms)
    except PolicyError as error:
        return Refusal({node.node: (str(error),)})


def _plan_on(
    request: Request, node: NodeView, ledger: Ledger, policy: Policy, rooms: Rooms
) -> Plan | Refusal:
    planned = _plan_in_pool(request, node, ledger, policy, rooms)
    if isinstance(planned, Plan) or node.is_silent:
        return planned
    if not node.outside:
        return _with_faults(planned, request.demand, node)
    supposed = replace(node, gpus=(*node.gpus, *node.outside), outside=())
    joined = _plan_in_pool(request, supposed, ledger, policy, rooms)
    if isinstance(joined, Refusal):
        return _with_faults(joined, request.demand, node)
    outside = {gpu.uuid for gpu in node.outside}
    if len({grant.gpu for grant in joined.booking.grants} & outside) <= node.acquirable:
        return Refusal({node.node: (Reason.ACQUIRING.value,)}, planned.best_free_bytes)
    why = (*(planned.reasons[node.node] if node.gpus else ()), Reason.OUTSIDE_POOL.value)
    return Refusal({node.node: tuple(sorted(why))}, planned.best_free_bytes)


def _with_faults(refusal: Refusal, demand: PodDemand, node: NodeView) -> Refusal:
    """A refusal that also names the faults, and the cordon, of GPUs which the pod might have had otherwise."""
    faults = [
        fault
        for fault in node.faults
        if (not demand.gpu_models or fault.model in demand.gpu_models) and demand.gpu_id in (None, fault.gpu)
    ]
    if not faults:
        return refusal
    # Without a GPU that would do, these are the node's only reason.
    nothing = {Reason.NO_REPORT.value, Reason.GPU_MODEL.value, Reason.GPU_ID.value}
    others = tuple(one for one in refusal.reasons[node.node] if one not in nothing)
    conditions = [fault.reason for fault in faults if fault.reason]
    ill = (unhealthy(conditions),) if conditions else ()
    cordoned = (Reason.CORDONED.value,) if len(conditions) < len(faults) else ()
    return replace(refusal, reasons={node.node: (*others, *ill, *cordoned)})


def _plan_in_pool(
    request: Request, node: NodeView, ledger: Ledger, policy: Policy, rooms: Rooms
) -> Plan | Refusal:
    """Plan on the GPU that has the pod's name or affinity label; where none has it, on those that may get it."""
    demand = request.demand
    ties = demand.gpu_name is not None or demand.locality.affinity is not None
    if not ties or not demand.containers or not node.gpus or node.is_silent:
        return _plan_among(request, node, ledger, policy, rooms)
    open_gpus = _tied(node, ledger, demand)
    if isinstance(open_gpus, Reason):
        return Refusal({node.node: (open_gpus.value,)})
    if len(demand.containers) == 1:
        return _plan_among(request, replace(node, gpus=open_gpus), ledger, policy, rooms)
    # All containers of the pod go to the one GPU that gets the name or the label.
    tried = [_plan_among(request, replace(node, gpus=(gpu,)), ledger, policy, rooms) for gpu in open_gpus]
    plans = [one for one in tried if isinstance(one, Plan)]
    return (
        max(plans, key=lambda plan: plan.score)
        if plans
        else on_no_gpu(one for one in tried if isinstance(one, Refusal))
    )


def _tied(node: NodeView, ledger: Ledger, demand: PodDemand) -> tuple[GpuView, ...] | Reason:
    """The GPUs of a node on which a pod may have its name and its affinity label, or the reason why none may."""
    holder = ledger.holder(demand.gpu_name) if demand.gpu_name is not None else None
    joined = ledger.joined(demand.locality)
    gpus = node.gpus
    if holder is not None:
        gpus = tuple(gpu for gpu in gpus if (node.node, gpu.uuid) == holder)
    elif demand.gpu_name is not None:
        gpus = tuple(gpu for gpu in gpus if not ledger.names_on(node.node, gpu.uuid))
    if not gpus:
        return Reason.GPU_NAMES if holder is None else Reason.GPU_ID
    if joined is not None:
        gpus = tuple(gpu for gpu in gpus if (node.node, gpu.uuid) == joined)
    return gpus or Reason.AFFINITY


def _plan_among(
    request: Request, node: NodeView, ledger: Ledger, policy: Policy, rooms: Rooms
) -> Plan | Refusal:
    """Plan on a node, see `assigned`.

    Args:
        request: the pod.
        node: the node.
        ledger: the bookings of all pods; not changed.
        policy: the order among GPUs that fit.
        rooms: the rooms of the node's GPUs that are known, as `room_on` gives them without a pending booking.
    """
    if not request.demand.containers:
        return judged(Context(request, node, rooms, ledger), [], policy)
    usable, reason = _usable_gpus(node, request.demand)
    if reason is not None:
        return Refusal({node.node: (reason.value,)})
    # Otherwise hundreds of containers would be placed before one is refused.
    if _most_sharers(request.demand) > SHARERS_PER_GPU * len(usable):
        return Refusal({node.node: (Reason.GPU_SHARERS.value,)})
    context = Context(request, node, rooms_on(request, node.node, usable, ledger, rooms), ledger)
    chosen = assigned(context, policy)
    return chosen if isinstance(chosen, Refusal) else judged(context, chosen, policy)


def _most_sharers(demand: PodDemand) -> int:
    """The grants of a pod that share GPUs at the same time, over all its GPUs."""
    return peak((one.lifespan, one.gpus) for one in demand.containers if not one.whole)


def _usable_gpus(node: NodeView, demand: PodDemand) -> tuple[tuple[GpuView, ...], Reason | None]:
    if not node.gpus:
        return (), Reason.NO_REPORT
    if node.is_silent:
        return (), Reason.SILENT
    of_model = tuple(gpu for gpu in node.gpus if not demand.gpu_models or gpu.model in demand.gpu_models)
    if not of_model:
        return (), Reason.GPU_MODEL
    named = tuple(gpu for gpu in of_model if demand.gpu_id in (None, gpu.uuid))
    return named, None if named else Reason.GPU_ID
