"""This machine's own GPU in the place of an emulated node: `python -m bench.hook.memory --gpu`."""

import os

import pynvml

from tests.hook.lib.program import LIBRARY


class GpuNode:
    """The first GPU that NVML shows."""

    def __init__(self) -> None:
        """Ask NVML.

        Raises:
            pynvml.NVMLError: there is no driver, or no GPU.
        """
        pynvml.nvmlInit()
        first = pynvml.nvmlDeviceGetHandleByIndex(0)
        self.uuids = [str(pynvml.nvmlDeviceGetUUID(first))]
        self.name = str(pynvml.nvmlDeviceGetName(first))
        self.driver = str(pynvml.nvmlSystemGetDriverVersion())
        pynvml.nvmlShutdown()

    def environment(self, *sources: dict[str, str], preload: str | None = str(LIBRARY)) -> dict[str, str]:
        """The environment of a program on this GPU; without `preload` it is not hooked."""
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        environment["CUDA_VISIBLE_DEVICES"] = self.uuids[0]
        if preload is not None:
            environment["LD_PRELOAD"] = preload
        for source in sources:
            environment |= source
        return environment
