"""Weighted processor sharing by gates, as a pure core: every container runs, and a gate shuts only on one that is
ahead.

Values and `now_ns` in, instructions out; nothing here reads a clock, a file or a socket. `events` has both;
`scheduler` turns one into the other, once a tick. What the processes' words say (`work`) becomes charges (`charging`)
to one account per container and GPU (`accounts`), whose dues are a water level (`rates`); `gpus` decides which
containers are to stand. NVML's figures correct the charges (`correction`), and `spans` finds requests that were not
met.

What always holds: a GPU's charges of a tick never add up to more than the tick; lags, spares and credits are bounded;
a gate over a container of which nothing executes opens by time alone; the same events give the same instructions.
"""
