"""The monitor's benchmark: what it costs, how soon its events come, what they save, and whether they are true.

Everything is real but the GPUs: monitor, broker, preload library, NATS, Redis, placer, and processes that come and
go. A measurement is a subject, and has a file; `__main__.py` puts them in a row.
"""
