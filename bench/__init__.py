"""Measurements: each prints a table for people and, last, one line of JSON. `make bench` runs them all."""
