"""A leader's Lease names each pod to which it may be writing, whatever becomes of the answers to its renewals."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.scheduler.binding.fence import FENCE, fence
from placer.scheduler.binding.scope import LISTED, WINDOW, WriteScope, WriteScopes
from plimsoll.ids import PodUid
from plimsoll.kube.client import connect
from plimsoll.kube.models import ObjectMeta, Pod
from plimsoll.kube.transport import ConflictError, PatchKind, RefusedError
from tests.placer.kube.lossy import LossyBinds, lose_answer, lose_request
from tests.placer.kube.world import read_pod
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_pod, get_pod, pod_manifest

INHERITED = WriteScope(3, 5, frozenset({PodUid("pod-1")}), frozenset({"ns/r1"}))


def pod(number: int, version: int) -> Pod:
    """A pod in this version."""
    return msgspec.structs.replace(
        read_pod(pod_manifest("p")), metadata=ObjectMeta(uid=f"pod-{number}", resourceVersion=str(version))
    )


def none_upcoming(most: int) -> Sequence[PodUid]:  # noqa: ARG001 - as in `WriteScopes`
    """No pod waits."""
    return ()


class Model:
    """A leader, and all notes that its Lease may hold at the moment."""

    def __init__(self) -> None:
        self.waiting: set[PodUid] = set()
        self.scopes = WriteScopes(lambda most: list(self.waiting)[:most], lambda: None)
        self.version = 0
        self.possible: list[WriteScope] = []
        self.under_way: dict[asyncio.Task[None], Pod] = {}

    async def renew(self, *, answered: bool) -> None:
        """Begin a renewal; without an answer the Lease may hold this note or an earlier one."""
        note = msgspec.json.decode(self.scopes.next(self.version), type=WriteScope)
        self.possible.append(note)
        self.version += 1
        if answered:
            self.scopes.stored()
            self.possible = [note]
        await asyncio.sleep(0)

    def check(self) -> None:
        """Each bind that has begun is in each note that the Lease may hold."""
        for task, bound in self.under_way.items():
            if task.done():
                assert all(note.has(bound) for note in self.possible)
        for note in self.possible:
            assert note.until - note.after == WINDOW
            assert len(note.pods) <= LISTED + len(self.under_way)

    async def end(self) -> None:
        """Cancel the binds that wait."""
        for task in self.under_way:
            task.cancel()
        await asyncio.gather(*self.under_way, return_exceptions=True)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("renew"), st.tuples(st.booleans(), st.integers(0, WINDOW))),
        st.tuples(st.just("bind"), st.tuples(st.integers(0, 5), st.integers(0, 2 * WINDOW))),
        st.tuples(st.just("end"), st.integers(0, 5)),
        st.tuples(st.just("wait"), st.integers(0, 5)),
    ),
    max_size=40,
)


@given(STEPS)
async def test_a_bind_that_has_begun_is_in_whatever_note_the_lease_holds(
    steps: list[tuple[str, object]],
) -> None:
    """Also after renewals without an answer, and with pods of any version."""
    model = Model()
    await model.renew(answered=True)
    for what, argument in steps:
        match what, argument:
            case "renew", (bool(answered), int(versions)):
                model.version += versions
                await model.renew(answered=answered)
            case "bind", (int(number), int(version)):
                one = pod(number, version)
                model.under_way[asyncio.create_task(model.scopes.begin_bind(one))] = one
            case "end", int(number):
                uid = f"pod-{number}"
                begun = [task for task, one in model.under_way.items() if one.metadata.uid == uid]
                if begun and all(task.done() for task in begun):
                    model.scopes.end_bind(model.under_way[begun[0]])
                    for task in begun:
                        del model.under_way[task]
            case "wait", int(number):
                model.waiting.add(PodUid(f"waits-{number}"))
        await asyncio.sleep(0)
        model.check()
    await model.renew(answered=True)
    await asyncio.sleep(0)
    assert all(task.done() for task in model.under_way), "a renewal covers each bind that waits for one"
    model.check()
    await model.end()


async def test_no_bind_of_a_burst_waits_for_a_renewal() -> None:
    """The Lease is renewed before its pods are used up, also if the renewal lasts for dozens of binds."""
    queue = [pod(number, 10**9) for number in range(4 * LISTED)]
    waiting = [PodUid(one.metadata.uid) for one in queue]
    hurried: list[int] = []  # the number of pods that waited then
    scopes = WriteScopes(lambda most: waiting[:most], lambda: hurried.append(len(waiting)))
    scopes.next(0)
    scopes.stored()
    for number, one in enumerate(queue):
        async with asyncio.timeout(0):
            await scopes.begin_bind(one)
        scopes.end_bind(one)
        waiting.pop(0)
        if hurried and len(waiting) == hurried[-1] - LISTED // 4:
            scopes.next(number)
            scopes.stored()
    assert len(hurried) < len(queue) / 100


async def test_a_leader_that_follows_another_keeps_its_scope_until_the_late_writes_cannot_succeed() -> None:
    """If the new leader dies before that too, the next one still finds the first one's pods."""
    scopes = WriteScopes(none_upcoming, lambda: None)
    scopes.found(msgspec.json.encode(INHERITED).decode())
    kept = msgspec.json.decode(scopes.next(100), type=WriteScope)
    assert kept.has(pod(1, 1))
    assert kept.has(pod(0, 4))
    assert kept.resized == INHERITED.resized
    scopes.inherited = None
    kept = msgspec.json.decode(scopes.next(100), type=WriteScope)
    assert not kept.has(pod(1, 1))
    assert not kept.has(pod(0, 4))
    assert kept.resized == frozenset()


async def test_a_lease_without_a_note_stands_for_all_pods() -> None:
    """Nothing is known of an earlier leader's binds, so any of the pods may have one."""
    scopes = WriteScopes(none_upcoming, lambda: None)
    scopes.found(None)
    assert scopes.inherited is not None
    assert scopes.inherited.has(pod(1, 1))
    assert scopes.inherited.has(pod(1, 2**40))


async def test_a_resize_waits_until_the_lease_names_its_pod() -> None:
    """The window of versions does not cover it, because most bound pods are older."""
    hurried: list[None] = []
    scopes = WriteScopes(none_upcoming, lambda: hurried.append(None))
    scopes.next(0)
    scopes.stored()
    task = asyncio.create_task(scopes.begin_resize("ns/p"))
    await asyncio.sleep(0)
    assert (task.done(), len(hurried)) == (False, 1)
    note = msgspec.json.decode(scopes.next(1), type=WriteScope)
    scopes.stored()
    await task
    assert note.resized == {"ns/p"}
    scopes.end_resize("ns/p")
    assert msgspec.json.decode(scopes.next(2), type=WriteScope).resized == frozenset()


async def test_no_write_waits_without_a_lease() -> None:
    """A placer that is the only one has no Lease, and binds at once."""
    scopes = WriteScopes(none_upcoming, None)
    await scopes.begin_bind(pod(1, 1))
    await scopes.begin_resize("ns/p")


async def test_a_fenced_pod_takes_no_write_of_an_earlier_version(
    apiserver: ApiServer, namespace: str
) -> None:
    """Neither a bind nor a patch; a lost request or answer is no obstacle, nor is a pod that is gone."""
    created = read_pod(await create_pod(apiserver, namespace, pod_manifest("p")))
    path = f"/api/v1/namespaces/{namespace}/pods/p"
    named = {"name": "p", "uid": created.metadata.uid, "resourceVersion": created.metadata.resourceVersion}
    faults = LossyBinds()
    faults.pod_faults.extend([lose_request, lose_answer])
    async with connect(apiserver.kubeconfig()) as client:
        version = await fence(
            faults.around(client),
            [f"{namespace}/p", f"{namespace}/gone"],
            asyncio.get_running_loop().time() + 60,
        )
        with pytest.raises(ConflictError):
            await client.post(f"{path}/binding", {"metadata": named, "target": {"kind": "Node", "name": "n"}})
        change = {"metadata": {"resourceVersion": named["resourceVersion"], "labels": {"a": "b"}}}
        with pytest.raises(ConflictError):
            await client.patch(path, change, PatchKind.MERGE)
    stored = await get_pod(apiserver, namespace, "p")
    assert FENCE in stored["metadata"]["annotations"]
    assert version == int(stored["metadata"]["resourceVersion"])
    assert "nodeName" not in stored["spec"]


async def test_a_fence_that_is_refused_ends_once_no_late_write_can_arrive() -> None:
    """A webhook that allows no patch does not stop the new leader for ever."""

    class Refusing(LossyBinds):
        async def patch(self, path: str, body: object, kind: PatchKind) -> bytes:  # noqa: ARG002 - see the base
            raise RefusedError("denied", 403, "Forbidden")

    assert await fence(Refusing(), ["ns/p"], asyncio.get_running_loop().time() + 0.2) is None
