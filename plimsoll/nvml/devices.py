"""The GPUs of a session with the driver: whole cards, and the MIG instances of cards that are divided.

What always holds: a MIG instance is a GPU of its own, and a card in MIG mode is none: no program runs on it. NVML
answers for health, position and events of cards alone, so it is asked for those of the instance's card.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pynvml

from plimsoll.ids import GpuUuid
from plimsoll.nvml.calls import Calls, away
from plimsoll.part.log import get_logger

_UNKNOWN: Final = frozenset({pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT})
"""No instance has this number. Numbers may have gaps."""

log = get_logger()


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU of the session.

    Attributes:
        handle: pynvml's untyped pointer: of the card, or of the instance.
        card: the card's handle.
        index: the card's, by NVML.
        mig_parent: for a MIG instance, the card's UUID.
        gpu_instance: for a MIG instance, its number in the events of its card.
    """

    handle: Any
    card: Any
    uuid: GpuUuid
    index: int
    model: str
    calls: Calls
    mig_parent: GpuUuid | None = None
    gpu_instance: int | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """A card of the session.

    Attributes:
        is_divided: it is in MIG mode.
        devices: the card itself, or in MIG mode its instances.
    """

    handle: Any
    uuid: GpuUuid
    index: int
    is_divided: bool
    calls: Calls
    devices: tuple[Device, ...]


def open_cards(calls: Calls, *, had_session: bool) -> tuple[Card, ...]:
    """Begin a session, and list the driver's cards, less those that do not answer.

    Args:
        calls: the calls of NVML.
        had_session: whether the driver has answered this process before.

    Raises:
        NvmlAwayError: there is no driver, or it lists no GPUs.
    """
    try:
        calls.nvmlInit()
    except pynvml.NVMLError as error:
        raise away("no NVIDIA driver answers", error, had_session=had_session) from error
    try:
        indices = range(calls.nvmlDeviceGetCount())
    except pynvml.NVMLError as error:
        pynvml.nvmlShutdown()
        raise away("the NVIDIA driver lists no GPUs", error, had_session=had_session) from error
    return tuple(card for index in indices if (card := _tried(calls, index)) is not None)


def open_card(calls: Calls, index: int) -> Card:
    """A card with its GPUs.

    Raises:
        NVMLError: the card does not answer.
    """
    handle = calls.nvmlDeviceGetHandleByIndex(index)
    uuid = GpuUuid(calls.nvmlDeviceGetUUID(handle))
    if not is_divided(handle):
        whole = Device(handle, handle, uuid, index, calls.nvmlDeviceGetName(handle), calls)
        return Card(handle, uuid, index, is_divided=False, calls=calls, devices=(whole,))
    return relisted(Card(handle, uuid, index, is_divided=True, calls=calls, devices=()))


def relisted(card: Card) -> Card:
    """A card in MIG mode with its present instances. Administrators make and end instances while we run.

    Raises:
        NVMLError: the card does not answer.
    """
    known = {one.uuid: one for one in card.devices}
    return replace(card, devices=tuple(known.get(one.uuid, one) for one in _instances(card)))


def is_divided(card: Any) -> bool:  # noqa: ANN401 - pynvml's untyped pointer
    """Whether a card is in MIG mode."""
    try:
        current, _ = pynvml.nvmlDeviceGetMigMode(card)
    except pynvml.NVMLError:
        return False  # this card has no MIG
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)


def _tried(calls: Calls, index: int) -> Card | None:
    try:
        return open_card(calls, index)
    except pynvml.NVMLError as error:
        log.error("a GPU cannot be opened and is left out", index=index, error=str(error))
        return None


def _instances(card: Card) -> Iterator[Device]:
    calls = card.calls
    for number in range(calls.nvmlDeviceGetMaxMigDeviceCount(card.handle)):
        try:
            handle = calls.nvmlDeviceGetMigDeviceHandleByIndex(card.handle, number)
        except pynvml.NVMLError as error:
            if error.value in _UNKNOWN:
                continue
            raise
        yield Device(
            handle=handle,
            card=card.handle,
            uuid=GpuUuid(calls.nvmlDeviceGetUUID(handle)),
            index=card.index,
            model=calls.nvmlDeviceGetName(handle),
            calls=calls,
            mig_parent=card.uuid,
            gpu_instance=int(calls.nvmlDeviceGetGpuInstanceId(handle)),
        )
