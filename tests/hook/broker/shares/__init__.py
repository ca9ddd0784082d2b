"""Tests of shares outside the core: gate files, pages of work, ticks, metrics."""
