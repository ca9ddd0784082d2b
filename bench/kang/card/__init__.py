"""Kang et al. 2024, Table I and Figures 1 and 2, on an emulated card, with a clock of its own.

Every task is a process of its own that calls the driver. A timeline in memory decides which task makes its next call,
and makes the next one only after the answer. So the order of all calls follows from the seed alone.
"""
