"""What the monitor decides, as values in and values out: no loop, thread, clock, file or socket.

Here belong the life of a task, the idle average, the node's state and what it advertises, and the parsers of
what the kernel tells about a process. What reads and publishes lies one level up.
"""
