"""Tests of the broker's core: values in, values out."""
