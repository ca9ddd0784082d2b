"""The placer's annotations for pods that a test binds by itself."""

import json
from typing import Any

from plimsoll.quantity import GIB


def decision_text(gpu: str, gib: int | None, share_pct: int = 0, limit_pct: int = 100, **more: object) -> str:
    """The decision that gives container `main` this memory, share and limit on one GPU; None: best effort."""
    line_bytes = (gib or 0) * GIB
    grant: dict[str, Any] = {
        "gpu": gpu,
        "line_bytes": line_bytes,
        "share_pct": share_pct,
        "limit_pct": limit_pct,
    }
    if gib is not None:
        grant["memory_bytes"] = line_bytes
    containers = {"main": [{**grant, **more}]}
    return json.dumps({"score": 1.0, "policy": "headroom", "time": "t", "containers": containers})


def whole_text(gpu: str) -> str:
    """The decision that gives container `main` this GPU alone."""
    return decision_text(gpu, None, share_pct=100, whole=True)


def decided(text: str, gpu: str = "GPU-1") -> dict[str, str]:
    """The annotations of a pod with this decision."""
    return {"plimsoll.dev/decision": text, "gpus.plimsoll.dev/main": gpu}
