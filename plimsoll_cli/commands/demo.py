"""`plimsoll demo`."""

import argparse
import signal

from plimsoll_cli.command import Command

ENDING = (signal.SIGTERM, signal.SIGHUP)
TERMINATED = 128 + signal.SIGTERM


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep", action="store_true", help="let everything run on until Ctrl-C, with the live page"
    )


def _run(given: argparse.Namespace) -> int:
    import asyncio  # noqa: PLC0415 - keeps --help fast

    from rich.console import Console  # noqa: PLC0415 - likewise

    from plimsoll_cli.demo.demo import run_demo  # noqa: PLC0415 - likewise

    async def until_ended() -> int:
        demo = asyncio.create_task(run_demo(Console(), keep=given.keep))
        # Its servers and its folder must not stay behind. Ctrl-C cancels it anyway.
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as by `nohup`
                asyncio.get_running_loop().add_signal_handler(number, demo.cancel)
        return await demo

    try:
        return asyncio.run(until_ended())
    except asyncio.CancelledError:
        return TERMINATED


COMMAND = Command(
    description="Run a dozen pods on three emulated nodes, live, in under a minute. Needs no GPU and no cluster.",
    declare=_declare,
    run=_run,
    exits={"0": "every promise held", "1": "an invariant broke, or a server did not start"},
)
