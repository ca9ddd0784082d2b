"""Tests of registrations: admission, and the lines of bound pods."""
