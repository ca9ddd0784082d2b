"""A CUDA program over the driver API that obeys one command a line, under the real preload and the emulator."""

import ctypes
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def main() -> None:
    """Obey commands until the input ends. Each answer has the driver's results and the requested values."""
    cuda = ctypes.CDLL("libcuda.so.1")
    cuda.cuMemAlloc_v2.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    last = ctypes.c_uint64()
    for line in sys.stdin:
        match line.split():
            case ["begin"]:
                context = ctypes.c_void_p()
                results = (
                    cuda.cuInit(0),
                    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
                    cuda.cuCtxSetCurrent(context),
                )
                answer = " ".join(map(str, results))
            case ["alloc", size]:
                address = ctypes.c_uint64()
                answer = str(cuda.cuMemAlloc_v2(ctypes.byref(address), int(size)))
                last = address if answer == "0" else last
            case ["free"]:
                answer = str(cuda.cuMemFree_v2(last))
            case ["total"]:
                free, total = ctypes.c_size_t(), ctypes.c_size_t()
                result = cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
                answer = f"{result} {total.value}"
            case ["cpus"]:
                answer = " ".join((_allowed("self"), _allowed_in_thread(), _allowed_in_child()))
            case words:
                raise ValueError(words)
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()


def _allowed(process: str) -> str:
    """The CPUs that a process or thread may use, as Linux lists them."""
    status = Path("/proc", process, "status").read_text()
    return next(line.split()[1] for line in status.splitlines() if line.startswith("Cpus_allowed_list"))


def _allowed_in_thread() -> str:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_allowed, "thread-self").result()


def _allowed_in_child() -> str:
    status = ["grep", "Cpus_allowed_list", "/proc/self/status"]
    return subprocess.run(status, check=True, capture_output=True, text=True).stdout.split()[1]


if __name__ == "__main__":
    main()
