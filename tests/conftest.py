"""Fixtures for every test; each subject has its own module. See `tests/servers` for what they start."""

pytest_plugins = ["tests.servers.blocking", "tests.servers.stores", "tests.servers.apiserver"]
