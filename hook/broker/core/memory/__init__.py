"""The memory of an overcommitted GPU: how much each container may hold, and which allocations wait."""
