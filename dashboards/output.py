"""The files of all dashboards, as the generator gives them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards import cluster, node, pod, project, team

FOLDER: Final = Path(__file__).resolve().parents[1] / "deploy" / "chart" / "dashboards"

DASHBOARDS: Final[dict[str, Callable[[], Dashboard]]] = {
    "plimsoll-cluster": cluster.dashboard,
    "plimsoll-node": node.dashboard,
    "plimsoll-pod": pod.dashboard,
    "plimsoll-team": team.dashboard,
    "plimsoll-itself": project.dashboard,
}
"""By uid, which is the name of the file too."""


def outputs() -> dict[Path, str]:
    """Each file with the text that it must have."""
    return {FOLDER / f"{uid}.json": encode(build().uid(uid)) for uid, build in DASHBOARDS.items()}


def encode(dashboard: Dashboard) -> str:
    """A dashboard as Grafana imports it, with a stable order of keys."""
    made = dashboard.build()
    for number, panel in enumerate(made.panels or (), start=1):
        panel.id_val = number  # links name a panel by it, so that Grafana must not choose it
    return json.dumps(made, cls=JSONEncoder, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
