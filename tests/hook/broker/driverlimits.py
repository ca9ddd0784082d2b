"""An operator's tool that reads and sets limits of control groups in the driver, one command a line."""

import sys
from pathlib import Path

import pynvml

from plimsoll.nvml import limits


def main() -> None:
    """Obey commands until the input ends."""
    pynvml.nvmlInit()
    for line in sys.stdin:
        match line.split():
            case ["get", index, cgroup]:
                found = limits.read(pynvml.nvmlDeviceGetHandleByIndex(int(index)), Path(cgroup))
                answer = str(found.hard_bytes)
            case ["remove", index, cgroup]:
                limits.write(pynvml.nvmlDeviceGetHandleByIndex(int(index)), Path(cgroup), None)
                answer = "removed"
            case words:
                raise ValueError(words)
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
