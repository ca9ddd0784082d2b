"""Errors that name their cause: each case on the real server that shows it."""
