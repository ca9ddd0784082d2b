"""One task as a process: it connects to the experiment, and makes the driver calls that it is asked for.

A request is a line: `context`, `allocate MIB`, or `exit CODE`. The answer to the first two is `granted` or `refused`.
The process keeps all memory until it ends.
"""

import socket
import sys

from bench.kang.task import MIB, Driver, RefusedError


def main() -> None:
    """Serve the experiment whose socket is the first argument, under the name that is the second."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[1])
        with connection.makefile("rw", encoding="ascii") as lines:
            print(sys.argv[2], file=lines, flush=True)
            driver: Driver | None = None
            for line in lines:
                call, *size = line.split()
                if call == "exit":
                    sys.exit(int(size[0]))
                try:
                    if driver is None:
                        driver = Driver()
                    else:
                        driver.work(driver.allocate(int(size[0]) * MIB))
                except RefusedError:
                    print("refused", file=lines, flush=True)
                else:
                    print("granted", file=lines, flush=True)


if __name__ == "__main__":
    main()
