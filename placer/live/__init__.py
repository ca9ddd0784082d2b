"""The live page: one HTML page from this package, and a stream of what it shows.

Here belong the page's files, the rows that they draw, and the stream. What always holds: the page reads and changes
nothing, no reader delays a decision by more than a few milliseconds, and a slow reader costs no memory: it gets the
newest state when it can take it, and the states in between are left out.
"""
