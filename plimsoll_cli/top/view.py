"""The user's choice of rows and their order, and the keys that change it."""

import enum
from dataclasses import dataclass, field
from typing import Final


class Screen(enum.Enum):
    """The lists, in the order of Tab; the value is the key that leads there."""

    GPUS = "g"
    PODS = "p"
    WAITING = "w"
    EVENTS = "e"


SORTS: Final = {
    Screen.GPUS: ("name", "used", "promised", "free", "share", "idle"),
    Screen.PODS: ("name", "state", "node", "used", "promised", "share"),
    Screen.WAITING: ("priority",),
    Screen.EVENTS: ("time",),
}
"""The orders of each list; the first is the default."""

BY_NAME: Final = frozenset({"name", "state", "node", "priority", "time"})
"""The orders that begin with the least; all others begin with the most."""

KEYS: Final = (
    ("g p w e", "GPUs, pods, pods that wait, events"),
    ("Tab", "the next of these"),
    ("↑ ↓ k j", "a line up or down"),
    ("PgUp PgDn", "a page up or down"),
    ("Home End", "the first or the last line"),
    ("s", "sort by the next column"),
    ("r", "reverse the order"),
    ("/", "show only what has a text in its names; Enter keeps it, Esc ends it"),
    ("space", "hold the screen, and go on"),
    ("?", "these keys"),
    ("q Ctrl-C", "quit"),
)

_STEPS: Final = {"up": -1, "k": -1, "down": 1, "j": 1}


@dataclass(slots=True)
class View:
    """The choices.

    Attributes:
        typed: the user is typing the filter.
        held: the screen stands still.
        offset: the first row that is shown.
        rows, page: the number of rows, and of those that have room; the drawing sets both.
        has_quit: the user has quit.
    """

    screen: Screen = Screen.GPUS
    sort: dict[Screen, str] = field(default_factory=lambda: {one: names[0] for one, names in SORTS.items()})
    is_reversed: bool = False
    filter: str = ""
    typed: bool = False
    held: bool = False
    help: bool = False
    offset: int = 0
    rows: int = 0
    page: int = 1
    has_quit: bool = False

    def press(self, key: str) -> None:
        """Do what a key asks for; other keys do nothing."""
        if key == "quit":
            self.has_quit = True
        elif self.typed:
            self._type(key)
        elif self.help:
            self.help = False
        else:
            self._choose(key)

    def _type(self, key: str) -> None:
        match key:
            case "enter":
                self.typed = False
            case "escape":
                self.typed, self.filter = False, ""
            case "backspace":
                self.filter = self.filter[:-1]
            case _ if len(key) == 1 and key.isprintable():
                self.filter += key
        self.offset = 0

    def _choose(self, key: str) -> None:
        match key:
            case "q":
                self.has_quit = True
            case "?" | "h":
                self.help = True
            case " ":
                self.held = not self.held
            case "/":
                self.typed = True
            case "escape":
                self.filter, self.offset = "", 0
            case "g" | "p" | "w" | "e":
                self._go(Screen(key))
            case "tab":
                screens = list(Screen)
                self._go(screens[(screens.index(self.screen) + 1) % len(screens)])
            case "s":
                names = SORTS[self.screen]
                self.sort[self.screen] = names[(names.index(self.sort[self.screen]) + 1) % len(names)]
                self.offset = 0
            case "r":
                self.is_reversed, self.offset = not self.is_reversed, 0
            case _:
                self._scroll(key)

    def _go(self, screen: Screen) -> None:
        self.screen, self.offset, self.is_reversed = screen, 0, False

    def _scroll(self, key: str) -> None:
        match key:
            case "home":
                self.offset = 0
            case "end":
                self.offset = self.rows
            case "pageup":
                self.offset -= self.page
            case "pagedown":
                self.offset += self.page
            case _:
                self.offset += _STEPS.get(key, 0)
        self.fit()

    def fit(self) -> None:
        """Keep the first row within the rows that there are."""
        self.offset = max(0, min(self.offset, self.rows - self.page))
