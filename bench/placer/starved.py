"""Pods that fit nowhere beside pods that fit: how long the latter wait.

Half of the hopeless pods are alike. The others all differ, so that the answer for one is no answer for another. A
placeable pod is made each second. Every node goes on reporting, and each report could wake every hopeless pod.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final

from bench.placer.binds import StuckError, watching
from bench.placer.objects import TOO_MANY_GIB, delete_pods, make_namespace, make_pod, make_pods, pod_object
from bench.placer.schedulers import Scheduler, started
from bench.placer.servers import Json, Servers

GIVE_UP_S: Final = 20.0
"""Once no pod was bound for this time at the end, the pods that still wait count as starved."""


@dataclass(frozen=True, slots=True)
class Starved:
    """How long placeable pods waited beside hopeless ones.

    Attributes:
        pending_s: for each placeable pod, from its appearance in the watch until it had a node, or the end.
        unbound: placeable pods that had no node at the end.
        hopeless_bound: hopeless pods that were bound all the same; 0 unless the placer is wrong.
        cpu_ratio: CPU time of the scheduler ÷ the time in which placeable pods came.
    """

    pending_s: list[float]
    unbound: int
    hopeless_bound: int
    cpu_ratio: float


async def beside_hopeless_pods(
    servers: Servers, scheduler: Scheduler, hopeless: int, placeable: int
) -> Starved:
    """Make the hopeless pods at once, and then a placeable pod each second."""
    namespace = await make_namespace(servers, f"starved-{scheduler.name}".replace("_", "-"))
    loop = asyncio.get_running_loop()
    async with watching(servers, namespace) as binds, started(scheduler, servers, "starved") as process:
        await make_pod(servers, namespace, pod_object("first", scheduler.scheduler_name))
        await binds.until_bound(1)
        begin_s, begin_cpu_s = loop.time(), process.cpu_s()
        async with asyncio.TaskGroup() as group:
            group.create_task(make_pods(servers, namespace, hopeless_pods(scheduler, hopeless)))
            names = [f"placeable-{number}" for number in range(placeable)]
            for name in names:
                await make_pod(servers, namespace, pod_object(name, scheduler.scheduler_name))
                await asyncio.sleep(1.0)  # the rate of arrivals is the experiment's
        with contextlib.suppress(StuckError):
            await binds.until_bound(1 + placeable, GIVE_UP_S)
        end_s = loop.time()
        cpu_ratio = (process.cpu_s() - begin_cpu_s) / (end_s - begin_s)
    await delete_pods(servers, namespace)
    return Starved(
        pending_s=[binds.bound_s.get(name, end_s) - binds.seen_s[name] for name in names],
        unbound=len(set(names) - binds.bound_s.keys()),
        hopeless_bound=len(binds.bound_s.keys() - {"first", *names}),
        cpu_ratio=cpu_ratio,
    )


def hopeless_pods(scheduler: Scheduler, count: int) -> list[Json]:
    """Pods that want more memory than any GPU has; the second half in as many sizes."""
    alike = count // 2
    return [
        pod_object(
            f"hopeless-{number:05d}", scheduler.scheduler_name, TOO_MANY_GIB + max(0, number - alike) / 1024
        )
        for number in range(count)
    ]


def starved_figures(found: Starved) -> Json:
    """The figures of the experiment."""
    return {
        "starved_s_max": round(max(found.pending_s), 3),
        "starved_cpu_ratio": round(found.cpu_ratio, 3),
        "starved_unbound": found.unbound,
        "hopeless_bound": found.hopeless_bound,
    }
