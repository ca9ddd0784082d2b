"""The library's partner on the node: lays out limits, knows the hooked processes, and frees the memory counts of dead
ones.

`core` decides and touches nothing. Each module beside it holds a piece of the outside world: shared files, `/proc`,
the two kinds of socket, the journal file, metrics. `engine` carries out the core's instructions a turn at a time,
and `app` wires the modules. Nothing here places pods or talks to NATS: `placer` and `monitor` do that. The broker
asks NVML only for compute time, and for memory where no monitor runs.
"""
