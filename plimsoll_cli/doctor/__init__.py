"""`plimsoll doctor`: looks at each part that it can reach, and says what is broken and what to do about it.

What always holds: no check changes anything. A check that cannot read its part says so, and never passes by default.
Each failure has a remedy that can be carried out as it stands. A check that fails takes no other check with
it.

`finding.py` has what a check says. `machine.py`, `bus.py`, `redis.py`, `cluster.py` with `installation.py`, and
`placer.py` have the checks, a module for each group. `examine.py` runs the groups, and `report.py` shows what they
found.
"""
