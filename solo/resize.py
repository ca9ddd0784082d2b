"""`python -m solo.resize NAME --gpu-share 40`: what `plimsoll resize -n plimsoll-run` executes.

For commands started by `plimsoll run`, where no placer and no bus are about: the broker is the ledger. What always
holds: as when a command is started, judging and registering happen under the lock of the broker's directory.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from placer.core.ledger import Ledger
from placer.core.registration import adopted
from placer.core.view import node_view
from placer.local.resize import resize
from plimsoll.broker.client import BrokerClient
from plimsoll.broker.root import default_root
from plimsoll.broker.wire import RUN_NAMESPACE, ContainerUse, Description
from plimsoll.ids import PodUid
from plimsoll.part.errors import InputError, PlimsollError
from plimsoll.placer_api.rpc import Resize, Resizing, change_shown
from plimsoll.quantity import format_bytes
from solo.machine import read_machine
from solo.private_broker import locked

BAD_INPUT: Final = 2
CONNECT_S: Final = 5.0
"""How long the broker may take to answer: it is there, or there is nothing to resize."""


async def resize_command(root: Path, request: Resize) -> str:
    """Change what a running command has; returns what to tell the person.

    The broker's answer is the confirmation: the change is in force when it comes.

    Raises:
        InputError: it cannot be; nothing was changed.
        BrokerAwayError, NotNowError: no broker answers.
        NoGpuError: there is no GPU.
    """
    async with BrokerClient(root, timeout_s=CONNECT_S) as broker, locked(root):
        description = await broker.describe()
        pod = _pod_named(request.pod, description)
        owners = {process.pid: use.pod for use in description.containers for process in use.processes}
        state = await asyncio.to_thread(read_machine, owners)
        ledger = Ledger()
        for _, booking in adopted(state.node, description):
            ledger.restore(booking)
        resized = await resize(request, pod, broker, ledger, node_view(state))
        uses = [use for use in (await broker.describe()).containers if use.pod == pod]
        return "\n".join(line for use in uses for line in _told(use, request, resized))


def _pod_named(name: str, description: Description) -> PodUid:
    """The one running command of that name, or of that uid."""
    found = {
        use.pod: use
        for use in description.containers
        if use.namespace == RUN_NAMESPACE and name in (use.pod_name, use.pod)
    }
    if not found:
        names = sorted({use.pod_name for use in description.containers if use.namespace == RUN_NAMESPACE})
        remedy = f"running are: {', '.join(names) or 'none'}"
        raise InputError("command", name, "is not running under `plimsoll run` here", remedy)
    if len(found) > 1:
        raise InputError("command", name, "runs more than once", f"name one of {', '.join(sorted(found))}")
    return next(iter(found))


def _told(use: ContainerUse, request: Resize, resized: Resizing) -> Iterator[str]:
    for place, (before, after) in enumerate(zip(resized.before, resized.after, strict=True)):
        told = f"{use.pod_name} on {after.gpu}: {change_shown(request, before, after)}"
        if request.gpu_memory is not None:
            held_bytes = sum(process.used_bytes[place] for process in use.processes)
            over = "" if held_bytes <= after.line_bytes else ": growth is refused until it is below"
            told += f", holds {format_bytes(held_bytes)} now{over}"
        yield told


def main(arguments: list[str] | None = None) -> int:
    """Resize; 0 once the change holds, 2 for bad input, 1 for what else went wrong."""
    parser = argparse.ArgumentParser(
        prog=f"plimsoll resize -n {RUN_NAMESPACE}",
        description="Change what a running command has of its GPUs: all that is given together, or nothing.",
    )
    parser.add_argument("name", help="the command's name or uid")
    parser.add_argument("--gpu-memory", help="its new GPU memory in total, for instance 6Gi")
    parser.add_argument("--gpu-share", help="percent of one GPU's compute time guaranteed, in total")
    parser.add_argument("--gpu-share-limit", help="most compute time per GPU, in percent")
    parser.add_argument("--container", help="of the command; it has but one, `main`")
    parser.add_argument(
        "--broker-root", type=Path, default=default_root(), help="the broker's directory (%(default)s)"
    )
    given = parser.parse_args(arguments)
    request = Resize(
        pod=given.name,
        namespace=RUN_NAMESPACE,
        gpu_memory=given.gpu_memory,
        gpu_share=given.gpu_share,
        gpu_share_limit=given.gpu_share_limit,
        container=given.container,
    )
    try:
        sys.stdout.write(asyncio.run(resize_command(given.broker_root, request)) + "\n")
    except PlimsollError as error:
        sys.stderr.write(f"plimsoll resize: {error}\n")
        return BAD_INPUT if isinstance(error, InputError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
