"""Tests of memory requests on an overcommitted GPU."""
