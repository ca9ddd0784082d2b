"""The command line. It talks to the parts over their APIs and starts them as processes; it imports none of them.

`main.py` holds the commands, one file each for what a command needs: starting the parts on this machine
(`local_cluster.py`), the live table (`table.py`), the demo's story (`demo.py`).
"""
