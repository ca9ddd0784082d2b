"""One container's program in ConVGPU's experiment: it requests all its memory, works for its time, and ends.

The program starts before its turn, so that an interpreter's start is not measured, and uses the GPU only after a
line of input. It prints the times of its request, its grant and its end, by the machine's monotonic clock.
"""

import argparse
import json
import sys
import time

from bench.kang.task import MIB, Driver, RefusedError


def main() -> None:
    """Wait for a line, run, and print the times; the exit code is 1 if the memory was refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory-mib", type=int, required=True, help="asked for in one piece")
    parser.add_argument("--run-s", type=float, required=True, help="how long it runs once it has its memory")
    given = parser.parse_args()
    print("ready", flush=True)
    sys.stdin.readline()
    asked_s = time.monotonic()
    try:
        driver = Driver()
        memory = driver.allocate(given.memory_mib * MIB)
    except RefusedError as error:
        print(json.dumps({"call": error.call, "code": error.code}), flush=True)
        sys.exit(1)
    has_s = time.monotonic()
    driver.work(memory)
    time.sleep(max(0.0, has_s + given.run_s - time.monotonic()))
    driver.free(memory)
    print(json.dumps({"asked_s": asked_s, "has_s": has_s, "ended_s": time.monotonic()}), flush=True)


if __name__ == "__main__":
    main()
