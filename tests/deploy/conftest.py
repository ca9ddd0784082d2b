"""The fixtures that all tests of the chart share."""

import functools
from collections.abc import Iterator

import kubernetes_validate
import pytest


@pytest.fixture(scope="session", autouse=True)
def schemas_are_read_once() -> Iterator[None]:
    """The validator reads all definitions of Kubernetes anew for each object, which takes most of its time."""
    with pytest.MonkeyPatch.context() as patch:
        read = functools.cache(kubernetes_validate.utils.schema_contents)
        patch.setattr(kubernetes_validate.utils, "schema_contents", read)
        yield
