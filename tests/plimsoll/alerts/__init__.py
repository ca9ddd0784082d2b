"""Tests of the alerts."""
