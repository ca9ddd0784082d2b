"""Fixtures of the live page's tests."""

from tests.placer.live.browser import chromium, watched

__all__ = ["chromium", "watched"]
