"""The cost of the memory line: allocations, launches and starts, with and without the preload library."""
