"""Signals that end each sleep early."""

import signal

handled: list[int] = []
"""The signals so far."""


def interrupt(seconds: float) -> None:
    """From now on a signal comes this often."""
    signal.signal(signal.SIGALRM, lambda number, _: handled.append(number))
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
