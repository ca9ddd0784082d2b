"""Writes the manifests that are generated from the chart in `deploy/chart`, so that no copy of it can drift.

    python -m tools.chart

The chart is the source, but for the forms of settings in its schema, which `tools.chart_schema` knows. Generated are
the flat base for kustomize, and the files of `deploy/` for people who want one part alone. tests/deploy compares them
with the chart. Helm's own engine renders, in this process.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tools.chart_schema import with_forms, written

ROOT: Final = Path(__file__).resolve().parents[1]
DEPLOY: Final = ROOT / "deploy"
CHART: Final = DEPLOY / "chart"
SCHEMA: Final = CHART / "values.schema.json"
BASE: Final = DEPLOY / "kustomize" / "base"
RELEASE: Final = "plimsoll"
NAMESPACE: Final = "plimsoll-system"

_WRITTEN: Final = "# Written by `python -m tools.chart` from deploy/chart: change the chart, not this file.\n"

_NAMESPACE: Final = f"""apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
"""

_PRIVILEGED: Final = f"""# Broker and monitor need the host's pids and directories, and the broker mounts volumes
# that the kubelet sees. Pod Security calls that `privileged`. Every other pod here meets `restricted`.
{_NAMESPACE}  labels:
    pod-security.kubernetes.io/enforce: privileged
    pod-security.kubernetes.io/warn: privileged
"""

_KUSTOMIZATION: Final = """apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
# Before this base: the Secret plimsoll-credentials, as docs/install.md shows.
resources:
  - plimsoll.yaml
"""

_WEBHOOK: Final = """# The admission webhook alone: its rights, its processes, and the pods about which the API
# server asks it. docs/webhook.md argues each choice. Name your image below, and apply this file as a whole.
"""

_DIALECTS: Final = """# For the webhook of webhook.yaml. Remove the ways that you do not need, and turn the others
# on in the webhook's settings: PLIMSOLL_WEBHOOK_HAMI=true, PLIMSOLL_WEBHOOK_GPUSHARE=GiB (or MiB),
# PLIMSOLL_WEBHOOK_KAI=true.
"""


def render(
    values: Mapping[str, Any], *, namespace: str = NAMESPACE, with_tests: bool = False
) -> dict[str, str]:
    """The manifests of each template, by its path below `templates`; templates that render nothing are left out.

    Args:
        values: what `--values` would give.
        namespace: the release's namespace.
        with_tests: whether to give the templates of `helm test` too, which no install applies.

    Raises:
        helm_python.HelmError: the values do not meet the schema, or a template refuses them.
    """
    # Imported here: Helm's engine is a library of 240 MB, and readers of the generated files do without it.
    import helm_python as helm  # noqa: PLC0415

    with helm.Chart.load(str(CHART)) as chart:
        rendered = chart.render(dict(values), name=RELEASE, namespace=namespace)
    texts = {path.partition("/templates/")[2]: _tidy(text) for path, text in rendered.items()}
    return {
        path: text
        for path, text in sorted(texts.items())
        if text and path.endswith(".yaml") and (with_tests or not path.startswith("tests/"))
    }


def _tidy(text: str) -> str:
    """Without the empty lines that templates leave, and without separators at the ends."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    kept = [
        line for index, line in enumerate(lines) if line != "---" or lines[index + 1 : index + 2] != ["---"]
    ]
    while kept and kept[0] == "---":
        kept.pop(0)
    while kept and kept[-1] == "---":
        kept.pop()
    return "".join(f"{line}\n" for line in kept)


def of_chart() -> dict[Path, str]:
    """The generated file of the chart itself, which it needs to render anything."""
    return {SCHEMA: written(with_forms(json.loads(SCHEMA.read_text()))) + "\n"}


def outputs() -> dict[Path, str]:
    """Every generated file with the text that it must have."""
    plain = render({"credentials": {"create": False}})
    # The webhook's pods must start where nothing else of ours is installed, so they have no priority class of ours.
    webhook = render({"priorityClass": {"create": False, "name": ""}, "networkPolicy": {"enabled": False}})
    dialects = render({"webhook": {"dialects": {"hami": True, "gpushare": "GiB", "kai": True}}})
    own = ("webhook/rbac.yaml", "webhook/deployment.yaml", "webhook/configuration.yaml")
    return {
        **of_chart(),
        BASE / "kustomization.yaml": _WRITTEN + _KUSTOMIZATION,
        BASE / "plimsoll.yaml": _WRITTEN + _joined([_PRIVILEGED, *plain.values()]),
        DEPLOY / "annotations-policy.yaml": _WRITTEN + plain["policies/annotations.yaml"],
        DEPLOY / "cordon-role.yaml": _WRITTEN + plain["policies/cordon.yaml"],
        DEPLOY / "resize-role.yaml": _WRITTEN + plain["policies/resize.yaml"],
        DEPLOY / "csi-driver.yaml": _WRITTEN + plain["node/csidriver.yaml"],
        DEPLOY / "webhook.yaml": _WRITTEN
        + _WEBHOOK
        + _joined([_NAMESPACE, *(webhook[path] for path in own)]),
        DEPLOY / "webhook-dialects.yaml": _WRITTEN + _DIALECTS + dialects["webhook/dialects.yaml"],
    }


def _joined(texts: Sequence[str]) -> str:
    return "---\n".join(texts)


def main() -> int:
    """Write every file that differs, and name it."""
    for made in (of_chart, outputs):
        for path, text in made().items():
            if not path.exists() or path.read_text() != text:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
                sys.stdout.write(f"wrote {path.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
