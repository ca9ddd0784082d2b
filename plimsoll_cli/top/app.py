"""The loop of `plimsoll top`: follows the placer's stream, reads keys, and draws what changed."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.text import Text

from plimsoll.part.errors import PlimsollError
from plimsoll_cli import output
from plimsoll_cli.asking import Where, asking
from plimsoll_cli.live import LiveCluster, snapshot
from plimsoll_cli.pods import waiting_lines
from plimsoll_cli.top.draw import HEAD_LINES, Moment, Size, lines
from plimsoll_cli.top.keys import SUSPEND, read, single_keys
from plimsoll_cli.top.rows import Row, rows
from plimsoll_cli.top.view import Screen, View

RETRY_S: Final = 1.0
"""The pause before a connection that broke is made again."""

PACE_S: Final = 0.1
"""The least time between two drawings, so that a burst of messages causes one drawing."""

TICK_S: Final = 1.0
"""The longest time between two drawings, for the clock and the ages of pods."""

PIPE_COLUMNS: Final = 120


def top(where: Where, sort: str, *, once: bool) -> int:
    """Run the command. Returns the exit code.

    Args:
        where: the placer.
        sort: the first order of the GPUs.
        once: print the cluster once; so is done where standard output is no terminal, or a dumb one.

    Raises:
        NoPlacerError, PlacerRefusedError: no placer answers at the start.
    """
    view = View()
    view.sort[Screen.GPUS] = sort
    # A shell may have exported the size that its terminal had once.
    environment = {name: value for name, value in os.environ.items() if name not in {"LINES", "COLUMNS"}}
    console = Console(highlight=False, markup=False, _environ=environment)
    if once or not console.is_terminal or console.is_dumb_terminal:
        _print(asyncio.run(snapshot(where)), view, console)
        return 0
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_Top(where, view, console).run())
    return 0


def _print(cluster: LiveCluster, view: View, console: Console) -> None:
    width = console.width if console.is_terminal else PIPE_COLUMNS
    found = rows(cluster, view)
    waiting = len(waiting_lines(cluster))
    height = HEAD_LINES + len(found) + (waiting + 2 if waiting else 0) + 1
    shown = lines(cluster, found, view, Size(width, height), Moment(_clock()))[:-1]
    with console.capture() as capture:
        for line in shown:
            console.print(line, soft_wrap=True)
    output.write("".join(line.rstrip() + "\n" for line in capture.get().splitlines()))


@dataclass(slots=True)
class _Top:
    """The command while it runs.

    Attributes:
        version: grows with each change of the cluster.
        suspended: the user pressed Ctrl-Z, and the process is to stop.
        resumed: the process was stopped by a signal and goes on.
    """

    where: Where
    view: View
    console: Console
    cluster: LiveCluster = field(default_factory=LiveCluster)
    problem: str = ""
    version: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    suspended: bool = False
    resumed: bool = False
    _rows: list[Row] = field(default_factory=list)
    _rows_of: tuple[object, ...] = ()

    async def run(self) -> None:
        """Draw until the user quits.

        Raises:
            NoPlacerError, PlacerRefusedError: no placer answers at the start.
        """
        following = asyncio.create_task(self._follow(), name="follow")
        try:
            await self._until_complete(following)
            while not self.view.has_quit:
                self.resumed = False
                await self._have_terminal()
                if self.suspended:
                    self.suspended = False
                    # Returns once the shell's `fg` continues the process.
                    os.kill(os.getpid(), signal.SIGTSTP)
        finally:
            following.cancel()
            await asyncio.wait([following])

    async def _have_terminal(self) -> None:
        """Draw until the user quits, suspends the command, or has continued it from a suspension by a signal."""
        with single_keys() as keyboard, self._signals():
            loop = asyncio.get_running_loop()
            if keyboard is not None:
                loop.add_reader(keyboard, self._press, keyboard)
            try:
                await self._draw()
            finally:
                if keyboard is not None:
                    loop.remove_reader(keyboard)

    async def _until_complete(self, following: asyncio.Task[None]) -> None:
        """Wait for the whole cluster, so that the first screen is no half one."""
        while not self.cluster.is_complete and not following.done():
            waiting = asyncio.create_task(self.changed.wait())
            await asyncio.wait([waiting, following], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            self.changed.clear()
        if following.done():
            following.result()

    async def _follow(self) -> None:
        was_complete = False
        while True:
            self.cluster.connect()
            try:
                async with asking(self.where, notes=False) as placer, aclosing(placer.live()) as messages:
                    async for kind, data in messages:
                        self.cluster.apply(kind, data)
                        if self.cluster.is_complete:
                            was_complete, self.problem = True, ""
                            self._note()
                self.problem = "the placer ended"
            except PlimsollError as error:
                if not was_complete:
                    raise
                self.problem = str(error)
            self._note()
            await asyncio.sleep(RETRY_S)

    def _note(self) -> None:
        self.version += 1
        self.changed.set()

    def _press(self, keyboard: int) -> None:
        for key in read(keyboard):
            if key == SUSPEND:
                self.suspended = True
            else:
                self.view.press(key)
        self.changed.set()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop, names = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
        for name in names:
            loop.add_signal_handler(name, self._quit)
        loop.add_signal_handler(signal.SIGWINCH, self.changed.set)
        loop.add_signal_handler(signal.SIGCONT, self._resume)
        try:
            yield
        finally:
            for name in (*names, signal.SIGWINCH, signal.SIGCONT):
                loop.remove_signal_handler(name)

    def _resume(self) -> None:
        """The shell may have changed the terminal's settings while this process was stopped."""
        self.resumed = True
        self.changed.set()

    def _quit(self) -> None:
        self.view.press("quit")
        self.changed.set()

    async def _draw(self) -> None:
        with Live(_Drawing(self), console=self.console, screen=True, auto_refresh=False) as live:
            while not (self.view.has_quit or self.suspended or self.resumed):
                self.changed.clear()
                live.refresh()
                await asyncio.sleep(PACE_S)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK_S):
                        await self.changed.wait()

    def screen(self, size: Size) -> list[Text]:
        """The lines of the screen now."""
        view = self.view
        wanted = (view.screen, view.sort[view.screen], view.is_reversed, view.filter)
        if not (view.held and self._rows_of[1:] == wanted) and self._rows_of != (self.version, *wanted):
            self._rows, self._rows_of = rows(self.cluster, view), (self.version, *wanted)
        return lines(self.cluster, self._rows, view, size, Moment(_clock(), self.problem))


@dataclass(frozen=True, slots=True)
class _Drawing:
    """The screen, drawn anew for the size that the terminal has at each drawing."""

    top: _Top

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Group(*self.top.screen(Size(options.max_width, options.height or console.height)))


def _clock() -> str:
    return f"{datetime.now(UTC).astimezone():%H:%M:%S}"
