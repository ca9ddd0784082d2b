"""`python -m simulator`: the entry, which ends silently by Ctrl-C from its first moment on."""

import signal
import sys

if __name__ == "__main__":
    # Python's own handler would print a traceback of the imports, which take a quarter of a second.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # `plimsoll simulate` blocks it
    from simulator.command import INTERRUPTED, main

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = main()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)
