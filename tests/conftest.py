"""Fixtures for every test; each subject has its own module. See `tests/servers` for what they start."""

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.servers.blocking", "tests.servers.stores", "tests.servers.apiserver"]

# No test asserts on speed: a machine shared with others may stop for seconds in the middle of an example.
settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")
