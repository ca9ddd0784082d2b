"""One inference task of Kang et al. in a loop, as a program that knows nothing of Plimsoll.

A run loads the memory that it keeps (libraries, weights), works, holds its peak on top towards the end, frees all,
and starts over. Runs end at multiples of their length on the machine's clock, plus a phase of the task's own, so
tasks stay as far out of step as they were started, however loaded the machine is. If an allocation is refused the run
has failed; the task reports that on standard output, one JSON object a line, and runs again, as the paper's tasks do.

It speaks the CUDA driver API by ctypes, so it runs on the emulator and on a real GPU alike.
"""

import argparse
import ctypes
import json
import sys
import time
from dataclasses import dataclass
from typing import Final

MIB: Final = 1024 * 1024
PAUSE_AFTER_FAILURE_S: Final = 0.2


class RefusedError(Exception):
    """The driver refused a call; `code` is its CUresult."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: {code}")
        self.call, self.code = call, code


class Driver:
    """The few calls of the CUDA driver API that a task needs."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", ctypes.c_uint(0))
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)

    def allocate(self, size_bytes: int) -> ctypes.c_uint64:
        """Device memory.

        Raises:
            RefusedError: there is not enough.
        """
        pointer = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size_bytes))
        return pointer

    def free(self, pointer: ctypes.c_uint64) -> None:
        """Free the memory."""
        self._call("cuMemFree_v2", pointer)

    def work(self, pointer: ctypes.c_uint64) -> None:
        """Keep the GPU busy for a moment: write the first MiB, and wait for the write."""
        self._call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(1), ctypes.c_size_t(MIB))
        self._call("cuCtxSynchronize")

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            raise RefusedError(name, code)


@dataclass(frozen=True, slots=True)
class Rhythm:
    """The times at which a task's runs peak and end, by the machine's monotonic clock in seconds."""

    run_s: float
    phase_s: float
    peak_ratio: float

    def end_of_run_s(self, start_s: float) -> float:
        """The end of a run that begins now: the task's next turn that leaves it at least half a run."""
        earliest_s = start_s + self.run_s / 2
        return earliest_s + (self.phase_s - earliest_s) % self.run_s


def run_once(driver: Driver, kept_bytes: int, peak_bytes: int, rhythm: Rhythm) -> None:
    """Run once. At its end the run holds no memory, also after an error.

    Raises:
        RefusedError: an allocation was refused.
    """
    end_s = rhythm.end_of_run_s(time.monotonic())
    held: list[ctypes.c_uint64] = []
    try:
        held.append(driver.allocate(kept_bytes))
        driver.work(held[0])
        sleep_until(end_s - rhythm.run_s * rhythm.peak_ratio)
        held.append(driver.allocate(peak_bytes))
        driver.work(held[1])
        sleep_until(end_s)
    finally:
        for pointer in held:
            driver.free(pointer)


def sleep_until(when_s: float) -> None:
    """Sleep until the monotonic clock shows `when_s`; return at once if it already does."""
    time.sleep(max(when_s - time.monotonic(), 0.0))


def main() -> None:
    """Run in a loop until ended; see the options. The exit code is 1 if any run failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--kept-mib", type=int, required=True, help="held for all of a run, context not included"
    )
    parser.add_argument("--peak-mib", type=int, required=True, help="held on top for part of a run")
    parser.add_argument("--run-s", type=float, default=2.0, help="length of a run")
    parser.add_argument("--peak-ratio", type=float, default=0.1, help="part of a run at the peak, 0 to 1")
    parser.add_argument(
        "--phase-s", type=float, default=0.0, help="when its runs end, so that tasks are out of step"
    )
    parser.add_argument(
        "--seconds", type=float, default=3600.0, help="end after the run in which this much passed"
    )
    given = parser.parse_args()
    rhythm = Rhythm(given.run_s, given.phase_s, given.peak_ratio)
    end = time.monotonic() + given.seconds
    driver, failed = Driver(), False
    while time.monotonic() < end:
        try:
            run_once(driver, given.kept_mib * MIB, given.peak_mib * MIB, rhythm)
            print(json.dumps({"run": "completed"}), flush=True)
        except RefusedError as error:
            print(json.dumps({"run": "failed", "call": error.call, "code": error.code}), flush=True)
            failed = True
            time.sleep(PAUSE_AFTER_FAILURE_S)
    sys.exit(failed)


if __name__ == "__main__":
    try:
        main()
    except RefusedError as error:
        # There is no room even for a context: on a real card the framework fails to initialise and the pod with it.
        print(json.dumps({"run": "failed", "call": error.call, "code": error.code}), flush=True)
        sys.exit(2)
