"""`python -m placer.pool.card`: writes the UUID of the container's only GPU to its termination message.

NVML says what the container has, however the device plugin brings GPUs into containers: by the variable
`NVIDIA_VISIBLE_DEVICES`, by mounts, or by CDI, which sets no variable.
"""

import sys
from pathlib import Path
from typing import Final

from plimsoll.nvml.library import Nvml
from plimsoll.nvml.readings import NvmlAwayError

MESSAGE: Final = Path("/dev/termination-log")
FAILED: Final = 1


def main(path: Path = MESSAGE) -> int:
    """Write the UUID, or the reason why there is none; returns the exit code."""
    nvml = Nvml()
    try:
        gpus = [sample.reading.uuid for sample in nvml.read(None)]
    except NvmlAwayError as error:
        path.write_text(f"{error}; remedy: give runtimeClass the runtime class of NVIDIA's runtime")
        return FAILED
    finally:
        nvml.close()
    if len(gpus) != 1:
        path.write_text(
            f"the container sees {len(gpus)} GPUs and should see 1; is the device plugin NVIDIA's?"
        )
        return FAILED
    path.write_text(gpus[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
