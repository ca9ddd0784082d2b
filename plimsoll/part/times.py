"""The text form of times in every event, announcement and annotation."""

from datetime import UTC, datetime
from typing import Final

from plimsoll.part.errors import InputError

AHEAD_S: Final = 366 * 86_400.0
"""Seconds by which a node's clock may be ahead of ours. A date of the year 9999 would be the newest for ever."""


def rfc3339(moment: datetime) -> str:
    """A time in UTC, always with six digits of a second, so that times compare as texts.

    Kubernetes' `MicroTime` needs exactly six: the API server answers fewer digits with 400.
    """
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def check_time(field: str, text: str, now_s: float) -> datetime:
    """The time of an event, in UTC by its node's clock.

    Raises:
        InputError: the text is no time, or it is more than a year ahead of `now_s`, in seconds since 1970: a wrong
            clock alone does not explain that.
    """
    try:
        time = datetime.fromisoformat(text)
        time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        is_ahead = time.timestamp() > now_s + AHEAD_S
    except (ValueError, OverflowError) as error:
        raise InputError(field, text, "is no time", "publish it in RFC 3339") from error
    if is_ahead:
        raise InputError(field, text, "is more than a year ahead", "set the clock of the node")
    return time
