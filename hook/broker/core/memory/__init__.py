"""Which container may hold how much memory of an overcommitted GPU, and which allocations wait."""
