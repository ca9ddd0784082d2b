"""Weighted processor sharing by gates, as a pure core: every container runs, and a gate shuts only for a container
that is ahead of its due.

Values and `now_ns` go in, instructions come out. Nothing here reads a clock, a file or a socket. `events` defines
both, and `scheduler` turns events into instructions once a tick. The processes' words (`meters`) become charges
(`charging`) to an account per container and GPU (`accounts`). `gpus` divides the dues among the accounts, and
decides which gates shut. A claim that its owner saved up in its pauses counts while it is worth the idle time that it
costs (`claims`). NVML's figures correct the charges (`correction`), and the accounts' histories show requests
that were not met.

A container (`tenants`) has its processes and its accounts. An account belongs to a GPU too, and knows the container's
gate, but neither the container nor its processes.

What always holds: the charges of a GPU in a tick never add up to more than the tick. Lags, spares and credits are
bounded. If nothing of a container executes, its gate opens by time alone. The same events give the same instructions.
"""
