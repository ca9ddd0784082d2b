"""The library's partner on the node: lays out limits, knows the hooked processes, gives back what the dead held.

`core` decides and touches nothing; the modules beside it each hold one piece of the outside world (shared
files, `/proc`, the two kinds of socket, the journal file, metrics); `engine` carries the core's instructions
out one turn at a time; `app` wires them. Nothing here places pods, talks to NATS or asks NVML: that is
`placer` and `monitor`.
"""
