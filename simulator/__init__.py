"""Replays experiments through the parts' own pure cores: what takes a GPU an hour takes milliseconds here.

Here belong the engine (`core/`: events over values and time, no clock, no randomness) and one folder per experiment,
which draws its workload by seed. Decisions are never made here: they are the broker's and the placer's own.
"""
