"""The text form of times in every event, announcement and annotation."""

from datetime import UTC, datetime


def rfc3339(moment: datetime) -> str:
    """A time in UTC, always with six digits of a second, so that times compare as texts.

    Kubernetes' `MicroTime` needs exactly six: the API server answers fewer digits with 400.
    """
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
