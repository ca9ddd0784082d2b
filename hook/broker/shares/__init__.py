"""Compute shares on the loop: ticks, gates, work pages, metrics. The decisions are made in `hook.broker.core.shares`."""
