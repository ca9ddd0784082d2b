"""The first process in a test node's namespaces: sets up mounts and network, runs a command, and reaps orphans.

Shims of containers lose their parent on purpose, so somebody must reap them. When this process ends, the kernel
ends all others of the namespace: no test leaves a shim, a container or a kubelet behind.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.node import network

# containerd, CNI and the kubelet write here, whatever their settings say.
OWN_DIRECTORIES: Final = ("/run", "/var/lib/cni", "/var/lib/kubelet", "/var/log/containers")


def main() -> int:
    """Run the command of the arguments and return its exit status."""
    # The kubelet's mounts must reach containers with `mountPropagation`, and stay within this namespace.
    subprocess.run(["mount", "--make-rshared", "/"], check=True)
    for path in OWN_DIRECTORIES:
        Path(path).mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", path], check=True)
    network.set_up()
    child = subprocess.Popen(sys.argv[1:])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: child.send_signal(number))
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            return os.waitstatus_to_exitcode(status) & 0xFF


if __name__ == "__main__":
    sys.exit(main())
