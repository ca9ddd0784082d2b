"""The command line. It uses the parts' APIs and starts the parts as processes; it imports none of them but `solo`.

`main.py` is the entry, and `commands/` has each command's options and texts. The work is in modules with the names of
the commands: `gpus.py`, `status.py`, `top/`, `doctor/`, `demo/` and so on.
"""
