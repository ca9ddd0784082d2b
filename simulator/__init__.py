"""Replays experiments through the parts' own pure cores: an hour on a GPU takes milliseconds here.

This package holds the engine (`core/`: events over values and time, without clock or randomness) and a folder per
experiment, which draws its workload by seed. It makes no decisions: those are the broker's and the placer's own.
"""
