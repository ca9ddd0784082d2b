"""Tests of the simulator: small cases worked out by hand, and what must hold for any workload."""
