"""The command line. It uses the parts' APIs and starts the parts as processes; it imports none of them.

`main.py` has the commands and their options, `status.py` and `resize.py` the work of these two, `demo/` the demo, and
`doctor/` the checks of `plimsoll doctor`.
"""
