"""Tests of the audit, which compares NVML's figures with the processes' counts."""
