"""Tests, in folders named after what they test. A package, so that no installed `tests` stands in for it."""
