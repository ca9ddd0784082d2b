"""Times as every event, announcement and annotation writes them."""

from datetime import UTC, datetime


def rfc3339(moment: datetime) -> str:
    """A time in UTC, always with six digits of a second, so that times compare as texts.

    Kubernetes' `MicroTime` wants just that: fewer digits are answered with 400.
    """
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
