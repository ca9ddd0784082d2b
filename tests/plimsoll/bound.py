"""Bound pods of one container, for tests that read the placer's annotations."""

from plimsoll.kube.models import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements


def bound(asked: dict[str, str | int], **annotations: str) -> Pod:
    """A bound pod of one container `main`; `gpus` names its GPUs, and other annotations come without their domain."""
    named = {
        "gpus.plimsoll.dev/main" if name == "gpus" else f"plimsoll.dev/{name.replace('_', '-')}": value
        for name, value in annotations.items()
    }
    limits: dict[str, str | int | float] = {f"plimsoll.dev/{name}": value for name, value in asked.items()}
    container = Container(name="main", resources=ResourceRequirements(limits=limits))
    metadata = ObjectMeta(name="p", namespace="ns", uid="u", annotations=named)
    return Pod(metadata=metadata, spec=PodSpec(containers=[container], nodeName="n"))
