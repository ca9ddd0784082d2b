"""Pods that fit nowhere beside pods that fit: how long the latter wait.

Half of the hopeless pods are alike. The others all differ, so that no answer for one is an answer for another. One
placeable pod is made each second. Every node goes on reporting, and each report could wake every hopeless pod.
"""

import asyncio
from dataclasses import dataclass

from bench.placer.binds import watching
from bench.placer.ground import Ground, Json
from bench.placer.objects import TOO_MANY_GIB, delete_pods, make_namespace, make_pod, make_pods, pod_object
from bench.placer.sides import Side, started


@dataclass(frozen=True, slots=True)
class Starved:
    """How long placeable pods waited beside hopeless ones.

    Attributes:
        pending_s: for each placeable pod, from its appearance in the watch until it had a node.
        hopeless_bound: hopeless pods that were bound all the same; 0 unless the placer is wrong.
        cpu_ratio: CPU time of the scheduler ÷ the time in which placeable pods came.
    """

    pending_s: list[float]
    hopeless_bound: int
    cpu_ratio: float


async def beside_hopeless_pods(ground: Ground, side: Side, hopeless: int, placeable: int) -> Starved:
    """Make the hopeless pods at once, and then a placeable pod each second."""
    namespace = await make_namespace(ground, f"starved-{side.name}".replace("_", "-"))
    loop = asyncio.get_running_loop()
    async with watching(ground, namespace) as binds, started(side, ground, "starved") as process:
        await make_pod(ground, namespace, pod_object("first", side.scheduler))
        await binds.until_bound(1)
        begin_s, begin_cpu_s = loop.time(), process.cpu_s()
        async with asyncio.TaskGroup() as group:
            group.create_task(make_pods(ground, namespace, hopeless_pods(side, hopeless)))
            names = [f"placeable-{number}" for number in range(placeable)]
            for name in names:
                await make_pod(ground, namespace, pod_object(name, side.scheduler))
                await asyncio.sleep(1.0)  # the rate of arrivals is the experiment's
        await binds.until_bound(1 + placeable)
        cpu_ratio = (process.cpu_s() - begin_cpu_s) / (loop.time() - begin_s)
        bound = len(binds.bound_s) - 1 - placeable
    await delete_pods(ground, namespace)
    return Starved([wait / 1000 for wait in binds.waits_ms(names)], bound, cpu_ratio)


def hopeless_pods(side: Side, count: int) -> list[Json]:
    """Pods that want more memory than any GPU has; the second half in as many sizes."""
    alike = count // 2
    return [
        pod_object(f"hopeless-{number:05d}", side.scheduler, TOO_MANY_GIB + max(0, number - alike) / 1024)
        for number in range(count)
    ]


def starved_figures(found: Starved) -> Json:
    """The figures of the experiment."""
    return {
        "starved_s_max": round(max(found.pending_s), 3),
        "starved_cpu_ratio": round(found.cpu_ratio, 3),
        "hopeless_bound": found.hopeless_bound,
    }
