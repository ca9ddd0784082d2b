"""The monitor's decisions, as values in and values out: no loop, thread, clock, file or socket.

Here belong the life of a task, the idle average, the node's state, and the events that follow from them. The code
that reads the node and publishes lies one level up.
"""
