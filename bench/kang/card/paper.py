"""Kang et al. (IJASEIT 2024) on tasks with 60,000 data on one card: Table I, and a row of Table III."""

from statistics import median
from typing import Final

ALONE_S: Final = 8.632
"""The running time of a task that is alone (Table III)."""
ALONE_MIB: Final = 1205
"""The memory of a task that is alone (Table III, in "MB")."""
FITTING: Final = 23
"""As many tasks complete, and no more (§II.A)."""

_COMPLETED_24: Final = (
    15.662, 24.017, 15.65, 15.126, 18.208, 24.174, 13.838, 14.322, 15.724, 13.803, 15.354, 15.305, 15.756, 18.147,
    13.992, 15.81, 15.74, 15.447,
)  # fmt: skip
_FAILED_24: Final = (11.728, 25.498, 25.678, 25.569, 25.592, 25.606)
_COMPLETED_25: Final = (13.8, 13.788, 13.413, 13.022, 12.993, 13.452, 13.365, 13.182, 13.924, 13.847)
_FAILED_25: Final = (
    11.044, 11.322, 11.187, 11.118, 11.209, 11.149, 11.169, 11.507, 11.366, 11.089, 11.287, 11.068, 11.027, 10.75,
    11.385,
)  # fmt: skip

COMPLETED_S: Final = {24: _COMPLETED_24, 25: _COMPLETED_25}
FAILED_S: Final = {24: _FAILED_24, 25: _FAILED_25}
"""The run times of Table I, in seconds, by the number of tasks and by whether they completed."""

FAILED: Final = {23: 0, 24: len(_FAILED_24), 25: len(_FAILED_25)}
"""The number of tasks that do not complete."""
COMPLETED_MEDIAN_S: Final = {count: median(times) for count, times in COMPLETED_S.items()}
"""The median run time of those that complete."""
