"""Redis: the sorted list of scores, and what outlives a placer.

`scores` is the list, and `list_writer` keeps it equal to memory. `learned` has the samples of owners, and keeps them
equal to memory too. `rooms` has the rooms of moved pods' replacements. No decision waits for Redis.
"""
