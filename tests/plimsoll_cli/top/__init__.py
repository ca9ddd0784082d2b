"""Tests of `plimsoll top`, and of the tables, in a real terminal."""
