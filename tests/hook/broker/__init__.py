"""Tests of the broker, over real sockets, files and processes."""
