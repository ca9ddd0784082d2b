"""A command that starts ordinary CUDA programs, each with a context of its own and nothing else.

`start COUNT` starts that many together. It answers with the driver's result for each one's context, in any order.
The programs live until the command ends.
"""

import ctypes
import subprocess
import sys


def hold_a_context() -> None:
    """Make a context, print the driver's result, and live until the input ends."""
    cuda = ctypes.CDLL("libcuda.so.1")
    status = cuda.cuInit(0) or cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0)
    sys.stdout.write(f"{status}\n")
    sys.stdout.flush()
    sys.stdin.read()


def start(count: int) -> list[str]:
    """Start programs, and return the driver's result of each."""
    ours = (sys.executable, __file__, "hold")
    started = [
        subprocess.Popen(ours, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)
    ]
    programs.extend(started)
    return [one.stdout.readline().strip() for one in started if one.stdout]


programs: list[subprocess.Popen[str]] = []

if __name__ == "__main__":
    if sys.argv[1:] == ["hold"]:
        hold_a_context()
    else:
        for line in sys.stdin:
            sys.stdout.write(" ".join(start(int(line.split()[1]))) + "\n")
            sys.stdout.flush()
