"""Fixtures of the placer's tests."""

import pytest

from placer.core.policies import listed_policies


@pytest.fixture(autouse=True, scope="session")
def _policies_are_listed() -> None:
    """The placer and the webhook list the installed policies at their start, before their loops ask for one."""
    listed_policies()
