"""After an outage of a real API server the reflector lists at once. A watch that only opens is not live."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from plimsoll.kube.client import connect
from plimsoll.kube.models import Pod
from plimsoll.kube.reflector import Reflector, Timing
from plimsoll.kube.transport import Body, GoneError, PatchKind, Query, TransientError, Transport
from plimsoll.part.backoff import Pauses
from tests.kube.reflected import Image
from tests.servers.apiserver import ApiServer
from tests.servers.control_plane import until_ready
from tests.servers.objects import create_pod, pod_manifest
from tests.servers.waiting import until_true


@dataclass(slots=True)
class Course:
    """A transport over a real one that records the requests of one reflector; its watches can be made to break.

    Attributes:
        steps: `list`, `watch` and `gone` (a 410 in a watch) in their order; `Draws` adds `pause`.
        breaks: each watch that is opened ends with an error at its first event.
        opened: the number of watches that the server answered with 200.
    """

    real: Transport
    steps: list[str] = field(default_factory=list)
    breaks: bool = False
    opened: int = 0

    async def get(self, path: str, query: Query = ()) -> bytes:
        """See `Transport`."""
        self.steps.append("list")
        return await self.real.get(path, query)

    async def post(self, path: str, body: Body) -> bytes:
        """Never called."""
        raise AssertionError((path, body))

    async def patch(self, path: str, body: Body, kind: PatchKind) -> bytes:
        """Never called."""
        raise AssertionError((path, body, kind))

    async def delete(self, path: str, body: Body) -> bytes:
        """Never called."""
        raise AssertionError((path, body))

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, query: Query, read_timeout_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """See `Transport`."""
        self.steps.append("watch")
        try:
            async with self.real.stream(path, query, read_timeout_s) as lines:
                self.opened += 1
                yield self._lines(lines)
        except GoneError:
            self.steps.append("gone")
            raise

    async def _lines(self, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for line in lines:
            if self.breaks:
                raise TransientError("the test's proxy drops the watch")
            yield line


class EqualPauses(Pauses):
    """Pauses that are recorded, and all equally long."""

    def __init__(self, steps: list[str], pause_s: float) -> None:
        super().__init__(pause_s, pause_s)
        self._steps, self._pause_s = steps, pause_s

    def next_s(self) -> float:
        """See `Pauses`."""
        self._steps.append("pause")
        return self._pause_s


@contextlib.asynccontextmanager
async def reflecting(api: ApiServer, timing: Timing) -> AsyncIterator[tuple[Image, Reflector[Pod], Course]]:
    """A running reflector of the pods in `default`, whose requests are recorded."""
    image = Image()
    async with connect(api.kubeconfig()) as client:
        course = Course(client)
        reflector = Reflector(course, "/api/v1/namespaces/default/pods", Pod, image.take, timing=timing)
        reflector._pauses = EqualPauses(course.steps, timing.longest_pause_s)
        task = asyncio.create_task(reflector.run())
        try:
            yield image, reflector, course
            assert not task.done(), "the reflector ended by itself"
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_server_that_is_back_and_has_forgotten_the_version_is_listed_without_a_pause(
    own_apiserver: ApiServer,
) -> None:
    """A restarted API server answers the first watch with 410. The list follows with no pause between them."""
    timing = Timing(first_pause_s=0.1, longest_pause_s=0.1)
    async with reflecting(own_apiserver, timing) as (image, reflector, course):
        await until_true(lambda: reflector.broken_s() == 0)
        # The server's memory begins after this version when it is started again.
        await own_apiserver.must("POST", "/api/v1/namespaces", {"metadata": {"name": "later"}})
        await own_apiserver.plane.server.kill()
        await until_true(lambda: course.steps.count("watch") > 2)
        await own_apiserver.plane.server.start()
        await until_ready(own_apiserver.plane)
        await create_pod(own_apiserver, "default", pod_manifest("new"))
        await until_true(lambda: "new" in [pod.metadata.name for pod in image.pods.values()])
    assert course.steps.count("gone") == 1
    assert course.steps[course.steps.index("gone") + 1] == "list"


async def test_watch_that_opens_and_breaks_again_and_again_does_not_count_as_live(
    own_apiserver: ApiServer,
) -> None:
    """While watches open and break at their first event, the time without a live watch grows."""
    timing = Timing(first_pause_s=0.1, longest_pause_s=0.1, live_after_s=600)
    async with reflecting(own_apiserver, timing) as (image, reflector, course):
        await until_true(lambda: image.emitted == ["synced"])
        course.breaks = True
        await create_pod(own_apiserver, "default", pod_manifest("unseen"))
        seen: list[float] = []

        def is_tried_again() -> bool:
            seen.append(reflector.broken_s())
            return course.opened > 3

        await until_true(is_tried_again)
        assert 0 not in seen[1:]
        assert seen == sorted(seen)
        course.breaks = False
        await until_true(lambda: reflector.broken_s() == 0)
        assert "unseen" in [pod.metadata.name for pod in image.pods.values()]


async def test_silent_watch_counts_as_live_once_it_has_been_open_for_a_while(
    own_apiserver: ApiServer,
) -> None:
    """In a quiet cluster no event shows that a watch works, so its time open does. Until then the list counts."""
    async with reflecting(own_apiserver, Timing(longest_pause_s=0.1, live_after_s=0.2)) as (
        image,
        reflector,
        course,
    ):
        await until_true(lambda: image.emitted)
        assert reflector.broken_s() < 60
        await until_true(lambda: reflector.broken_s() == 0)
        assert course.steps == ["list", "watch"]
