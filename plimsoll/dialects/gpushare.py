"""gpushare's resource `aliyun.com/gpu-mem`: memory of one GPU, in GiB, or in MiB where its device plugin says so.

Read in AliyunContainerService/gpushare-scheduler-extender. There, all containers of a pod share one GPU; here, each
container has its own, which may be the same.
"""

from dataclasses import dataclass, field
from typing import Final, Literal

from plimsoll.contract import GPU_MEMORY
from plimsoll.dialects import Json, Translation
from plimsoll.dialects.containers import amount, asked_of, first_resource, with_containers, with_resources

MEMORY: Final = "aliyun.com/gpu-mem"


@dataclass(frozen=True, slots=True)
class Gpushare:
    """gpushare; see the module.

    Attributes:
        unit: the unit of `aliyun.com/gpu-mem`, as its device plugin got it by `--memory-unit`.
    """

    unit: Literal["GiB", "MiB"] = "GiB"
    name: str = field(default="gpushare", init=False)
    scheduler: None = field(default=None, init=False)

    def asks(self, pod: Json) -> str | None:
        """See `Dialect`."""
        return first_resource(pod, {MEMORY})

    def translate(self, pod: Json) -> Translation:
        """See `Dialect`."""
        changes: list[str] = []

        def change(where: str, container: Json) -> Json:
            asked = asked_of(container)
            if str(asked.get(MEMORY, 0)) == "0":
                return container
            memory = amount(asked[MEMORY], f"{where}.resources[{MEMORY}]", self.unit)
            given = {GPU_MEMORY: f"{memory}{self.unit.removesuffix('B')}"} if memory else {}
            ours = ", ".join(f"{name}: {value}" for name, value in given.items()) or "nothing"
            changes.append(f"{where}.resources: {MEMORY}: {asked[MEMORY]} became {ours}")
            return with_resources(where, container, [MEMORY], given)

        return Translation(with_containers(pod, change), tuple(changes))
