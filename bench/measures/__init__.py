"""How several benchmarks measure processes, and sum values up."""
