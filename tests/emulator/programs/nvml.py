"""Evaluates what a test sends, a line of JSON each; `n` is pynvml, `gpu(i)` a handle, `Cuda` the driver."""

import ctypes
import json
import sys
import threading  # noqa: F401 - for the test's statements
import traceback

import pynvml as n


def gpu(index: int) -> object:
    """NVML's handle of a GPU."""
    return n.nvmlDeviceGetHandleByIndex(index)


class Cuda:
    """The driver, which a program that only reads NVML does not load."""

    def __init__(self) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.pointers: list[ctypes.c_uint64] = []
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: object) -> None:
        """Calls a function of the driver, which must succeed."""
        code = getattr(self.driver, name)(*arguments)
        if code:
            message = f"{name}: CUDA error {code}"
            raise RuntimeError(message)

    def open(self, index: int) -> None:
        """Makes a context on a GPU."""
        context = ctypes.c_void_p()
        self.call("cuCtxCreate_v2", ctypes.byref(context), 0, index)

    def allocate(self, size: int) -> None:
        """Allocates device memory."""
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        self.pointers.append(pointer)

    def copy(self, size: int) -> None:
        """Copies to the memory that was allocated first."""
        source = ctypes.create_string_buffer(size)
        self.call("cuMemcpyHtoD_v2", self.pointers[0], source, ctypes.c_size_t(size))

    def launch(self, seconds: float) -> None:
        """Launches a kernel of this length, and does not wait for it."""
        module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), b"any image")
        self.call("cuModuleGetFunction", ctypes.byref(kernel), module, b"busy")
        length_ns = ctypes.c_uint64(int(seconds * 1e9))
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length_ns))
        self.call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, None, parameters, None)


events: object = None
"""The event set that the test makes."""
got: list[int] = []


def wait(timeout_ms: int) -> list[int]:
    """The next event of the set: GPU, type, data."""
    event = n.nvmlEventSetWait(events, timeout_ms)
    return [n.nvmlDeviceGetIndex(event.device), event.eventType, event.eventData]


def listen(count: int, timeout_ms: int) -> None:
    """Puts the data of this many events into `got`."""
    got.extend(wait(timeout_ms)[2] for _ in range(count))


def evaluate(code: str) -> object:
    """The value of an expression; statements have none."""
    try:
        expression = compile(code, "<test>", "eval")
    except SyntaxError:
        exec(compile(code, "<test>", "exec"), globals())  # noqa: S102 - the test's own
        return None
    value: object = eval(expression, globals())  # noqa: S307 - the test's own
    return value


for line in sys.stdin:
    reply: dict[str, object]
    try:
        reply = {"value": evaluate(json.loads(line))}
    except n.NVMLError as error:
        reply = {"nvml_error": error.value}
    except Exception:  # noqa: BLE001 - the test shows whatever it was
        reply = {"failure": traceback.format_exc()}
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()
