"""Tests of the pure part of the alerts."""
