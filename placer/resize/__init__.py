"""Resizes of bound pods: `tickets` takes and answers the requests, `resize` carries one out in a single write.

Not here: the quotas to which a raise is held, which pods that wait are held to as well (`placer.scheduler.quotas`).
"""
