"""The XID errors of NVIDIA's driver, and what each says about the GPU.

The numbers and texts follow NVIDIA's "XID Errors" (docs.nvidia.com/deploy/xid-errors) and its GPU memory error
management guide. The class says what Plimsoll does:

* `fatal`: no new container goes to the GPU until it was reset. The catalogue asks for a reset, a reboot, or a new
  card.
* `degraded`: the GPU works, and somebody should look at it. Placement does not change.
* `info`: the driver's note on a fault of a program, or on a fault that it has handled.

We deviate twice. 94 (a contained memory error) ends one program and spares the others; the catalogue lets the GPU run
on until a convenient reset. Here it counts as fatal, because "no new container, and a reset once it is empty" is that
advice. A number that the table lacks counts as degraded, because nobody can say what it means.
"""

from dataclasses import dataclass
from typing import Final

from plimsoll.gpu_events import HealthClass


@dataclass(frozen=True, slots=True)
class Xid:
    """A row of the catalogue.

    Attributes:
        health: see the module.
        text: the meaning, in few words.
        until_reset: the error concerns the GPU until it is reset. False: it has passed once it stops recurring.
    """

    health: HealthClass
    text: str
    until_reset: bool


def _fatal(text: str) -> Xid:
    return Xid(HealthClass.FATAL, text, until_reset=True)


def _degraded(text: str) -> Xid:
    return Xid(HealthClass.DEGRADED, text, until_reset=True)


def _info(text: str) -> Xid:
    return Xid(HealthClass.INFO, text, until_reset=False)


CATALOGUE: Final = {
    13: _info("graphics engine exception of a program"),
    31: _info("memory page fault of a program"),
    43: _info("a program's channel stopped"),
    45: _info("a program's channels were removed, after another error or at its end"),
    46: _fatal("the GPU stopped processing"),
    48: _fatal("double bit ECC error"),
    61: _degraded("internal micro-controller breakpoint"),
    62: _fatal("internal micro-controller halt"),
    63: _degraded("a page is to be retired, or a row to be remapped, at the next reset"),
    64: _fatal("a page could not be retired, or a row not be remapped"),
    68: _info("video decoder exception of a program"),
    69: _info("graphics engine class error of a program"),
    74: _degraded("NVLink error"),
    79: _fatal("the GPU has fallen off the bus"),
    92: _degraded("high rate of single bit ECC errors"),
    94: _fatal("contained memory error"),
    95: _fatal("uncontained memory error"),
    119: _fatal("the GPU's system processor does not answer"),
    120: _fatal("error of the GPU's system processor"),
    121: _degraded("corrected error of the link between chips"),
    140: _fatal("unrecovered ECC error"),
    154: _info("the driver's advice on recovery changed"),
}
"""By number."""


def xid(number: int) -> Xid:
    """The catalogue's row of an XID; for a number that it lacks, one that says so."""
    return CATALOGUE.get(number, Xid(HealthClass.DEGRADED, "see NVIDIA's XID catalogue", until_reset=False))
