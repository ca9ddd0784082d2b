"""`plimsoll top`: the cluster in a terminal, live.

`view.py` has what the user has chosen, `rows.py` the rows that follow from it, `draw.py` their lines, `keys.py` the
keys, and `app.py` the loop around them. What always holds: the command only reads, outlives its placer, and leaves
the terminal as it found it, however it ends.
"""
