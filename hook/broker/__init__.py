"""The library's partner on the node: lays out limits, knows the hooked processes, and frees the memory counts of dead
ones.

Everything flows one way, a turn at a time:

    sockets (hook, control) ─┐                                        ┌─► files, journal
    measurements (NVML)      ├─► engine ─ event ─► core ─ instruction ┼─► sockets: answers, announcements
    pods (the cluster)       │                                        └─► log
    proc (deaths, /proc)    ─┘
    work pages ─► shares.ticks ─ event ─► core.shares ─ instruction ─► gates

`core` decides and touches nothing: its `Node` takes events and gives instructions. Each module beside it holds a
piece of the outside world. `engine` takes the events and carries the instructions out: `files.work` those for files,
in a thread of its own, before those for sockets. `driver_lines` brings lines to the driver, and `csi` brings pages
into pods. `app` wires all of it.

Nothing here places pods or talks to NATS: `placer` and `monitor` do that. The broker asks NVML only for compute time,
and for memory where no monitor runs.
"""
