"""Tests of the figures that the benchmarks compute from their measurements."""
