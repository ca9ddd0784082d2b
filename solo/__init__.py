"""`plimsoll run`: one command on one machine, on its GPUs and held to what it declares.

Here belong the command's options, the private broker and the reading of this machine's GPUs. No Kubernetes, no bus,
no Redis and no placer is needed. The decision is `placer.core`'s, and the broker's registrations are the ledger.
"""
