"""Tests of what NVML shows against what processes count."""
