"""Ends a process although threads hang: in the lookup of a name, in a driver, or on a disk that does not answer.

At its end, asyncio waits for the threads of its pool (Python 3.11 without a limit), and the interpreter waits for all
threads. Nobody can end a thread from outside. What always holds: once a part's tasks have ended, its threads have
`GRACE_S` to end too. After that, the process ends without them.
"""

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from plimsoll.part.log import get_logger

GRACE_S: Final = 5.0
"""Seconds that threads get for the work that they have begun. The kubelet gives a pod 30 s for everything."""


class Threads(ThreadPoolExecutor):
    """The pool of an event loop, for which the loop does not wait when it closes."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        """Take no more work, and return at once. Work that has begun goes on, other work is dropped."""
        super().shutdown(wait=False, cancel_futures=True)


def leave_hanging_threads(status: int) -> None:
    """End the process with this exit code in `GRACE_S`, if threads keep it alive until then.

    Call this last, when nothing is left to do but to return from the program.
    """
    if _others():
        threading.Thread(target=_leave, args=(status,), name="end of the process", daemon=True).start()


def _others() -> list[threading.Thread]:
    """The living threads for which the interpreter waits."""
    return [one for one in threading.enumerate() if one is not threading.main_thread() and not one.daemon]


def _leave(status: int) -> None:
    time.sleep(GRACE_S)
    names = [thread.name for thread in _others()]
    get_logger().warning("ends without threads that hang", threads=names)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
