"""The volume that an unbound claim wants, read from the claim once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import msgspec

from placer.core.mounts import ClaimKey
from placer.core.selector import check_of
from plimsoll.kube.models import LabelSelector, ObjectMeta, Quantities
from plimsoll.kube.storage_models import BETA_CLASS, SELECTED_NODE, STORAGE, Claim
from plimsoll.part.errors import InputError
from plimsoll.quantity import parse_exact

FILESYSTEM: Final = "Filesystem"
"""The mode of claims and volumes that name none."""

Check = Callable[[Mapping[str, str]], bool]


@dataclass(frozen=True, slots=True)
class WantedVolume:
    """The volume that an unbound claim asks for.

    Attributes:
        claim: the claim, as the scheduler assumes it.
        key: its name.
        class_name: the StorageClass; empty for none.
        requested: the bytes that the claim requests; None if it requests none.
        selects: whether the claim selects a volume with these labels.
        selected_node: the node for which the claim is already being provisioned, or None.
    """

    claim: Claim
    key: ClaimKey
    class_name: str
    requested: Fraction | None
    selects: Check
    selected_node: str | None

    @property
    def shape(self) -> bytes:
        """Equal for claims that differ in nothing but their name."""
        spec = msgspec.structs.replace(self.claim.spec, storageClassName=self.class_name)
        return msgspec.json.encode(spec, order="sorted")


def wanted_volume(claim: Claim) -> WantedVolume:
    """The volume that a claim wants."""
    meta = claim.metadata
    return WantedVolume(
        claim,
        ClaimKey(meta.namespace, meta.name),
        class_of(meta, claim.spec.storageClassName),
        storage_in(claim.spec.resources.requests),
        check_of_labels(claim.spec.selector),
        (meta.annotations or {}).get(SELECTED_NODE),
    )


def class_of(meta: ObjectMeta, named: str | None) -> str:
    """The class of a claim or a volume; empty for none."""
    return (meta.annotations or {}).get(BETA_CLASS, named or "")


def storage_in(quantities: Quantities | None) -> Fraction | None:
    """The bytes of storage among quantities; None if there are none, or they cannot be read."""
    return size_of((quantities or {}).get(STORAGE))


def size_of(quantity: str | float | None) -> Fraction | None:
    """A quantity; None if there is none, or it cannot be read."""
    try:
        return None if quantity is None else parse_exact(quantity, STORAGE)
    except InputError:
        return None


def check_of_labels(selector: LabelSelector | None) -> Check:
    """A label selector as a function; without one everything is selected, and by an unknown operator nothing."""
    if selector is None:
        return lambda _: True
    wanted = (selector.matchLabels or {}).items()
    checks = [check_of(one) for one in selector.matchExpressions or ()]
    return lambda labels: wanted <= labels.items() and all(check(labels) for check in checks)
