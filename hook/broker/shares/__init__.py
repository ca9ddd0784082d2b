"""Compute shares on the loop: ticks, gates, work pages, metrics. `hook.broker.core.shares` makes the decisions."""
