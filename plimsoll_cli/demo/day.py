"""The pods of a demo that is kept: those of the demo again and again, drawn by a seed, until the demo ends.

What always holds: a few pods run at a time, so a kept demo costs little. Each has a name of its own.
"""

import asyncio
import random
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, Final

import yaml

from plimsoll.placer_api.client import PlacerAwayError, PlacerClient, PlacerRefusedError

PAUSE_S: Final = 10.0
"""The mean time between two arrivals. With `LIFE_S`, some five pods run on six GPUs."""
LIFE_S: Final = (20, 90)
"""The bounds of the time that a pod's program computes."""

_SECONDS: Final = "--seconds"


def arrivals(pods: Sequence[dict[str, Any]], seed: int) -> Iterator[tuple[float, dict[str, Any]]]:
    """Pauses in seconds, each with the pod that arrives after it, for ever; equal for equal seeds.

    Args:
        pods: those to draw from. Programs get another `--seconds`.
        seed: of the draws.
    """
    draws = random.Random(seed)  # noqa: S311 - a workload, and no secret
    for number in count(1):
        pod = draws.choice(pods)
        container = pod["spec"]["containers"][0]
        args = list(container["args"])
        args[args.index(_SECONDS) + 1] = str(draws.randint(*LIFE_S))
        spec = {**pod["spec"], "containers": [{**container, "args": args}]}
        name = f"{pod['metadata']['name']}-{number}"
        yield (
            draws.expovariate(1 / PAUSE_S),
            {**pod, "metadata": {**pod["metadata"], "name": name}, "spec": spec},
        )


async def go_on(placer: PlacerClient, pods: Sequence[dict[str, Any]], seed: int) -> None:
    """Submit the arrivals until cancelled. A pod that the placer does not take is left out."""
    for pause_s, pod in arrivals(pods, seed):
        await asyncio.sleep(pause_s)
        try:
            await placer.submit(yaml.safe_dump(pod))
        except (PlacerAwayError, PlacerRefusedError):
            continue
