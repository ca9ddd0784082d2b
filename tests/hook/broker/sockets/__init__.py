"""Tests of the container sockets."""
