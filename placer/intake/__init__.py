"""Events of the monitors, as decisions and explanations read them.

`intake` reads the stream (`stream`) newer-only into `reports`; `limit_news` and `violation_events` keep what
explanations and evictions need.
"""
