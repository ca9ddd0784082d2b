"""Chaos: real servers and placers under random faults, while an independent watch adds up what pods were promised.

`make chaos` runs it for ten minutes, `test_chaos.py` for some seconds. `fleet`, `pods` and `plan` define machines,
pods and faults, by seed. `world`, `proxy`, `monitors`, `tenants` and `faults` carry them out. `promises`, `room`,
`witness` and `verdict` judge. What always holds: the judges import nothing of the placer, and nothing of ours that
reads a pod. They parse pods by themselves, so they do not repeat a mistake of the placer's arithmetic.
"""
