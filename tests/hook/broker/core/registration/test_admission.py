"""Admission: the shares of a GPU that may be promised."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json, structs

from hook.broker.core.registration import PodRecord, check, check_shares, promised_pct
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.ids import ContainerName, PodUid
from plimsoll.lifespan import MAIN, Lifespan
from plimsoll.part.errors import InputError
from tests.hook.broker.conftest import GPUS


def pod(uid: str, *shares_pct: int, whole: bool = False) -> Register:
    """A pod with one container per share, each on both GPUs."""
    containers = tuple(
        ContainerLines(
            name=ContainerName(f"c{place}"),
            lines=tuple(Line(gpu=gpu, line_bytes=1, share_pct=share_pct) for gpu in GPUS),
            whole=whole,
        )
        for place, share_pct in enumerate(shares_pct)
    )
    return Register(pod=PodUid(uid), namespace="n", name=uid, containers=containers)


def test_a_pod_may_take_what_is_left_and_no_more() -> None:
    """On a GPU with 70 promised, 30 are admitted and 31 are refused, with the pods that hold the rest."""
    records = [PodRecord(pod=pod("a", 30, 30)), PodRecord(pod=pod("b", 10))]
    check_shares(pod("c", 10, 20), records)
    with pytest.raises(InputError) as caught:
        check_shares(pod("c", 31), records)
    assert str(caught.value) == (
        "containers[0].lines[0].share_pct: 31 brings the shares promised of GPU-aaaa to 101;"
        " give at most 30, or unregister one of a (60), b (10)"
    )


def test_one_pod_alone_may_not_pass_a_hundred() -> None:
    """Two containers of one pod that request 60 each are refused on an empty GPU."""
    with pytest.raises(InputError, match="to 120; give at most 40, so that they come to 100"):
        check_shares(pod("a", 60, 60), [])


def test_who_leaves_or_owns_its_gpus_takes_nothing() -> None:
    """Unregistered pods and whole GPUs do not count in the sum, and are not checked against it."""
    records = [PodRecord(pod=pod("a", 100), leaving=True), PodRecord(pod=pod("b", 100, whole=True))]
    check_shares(pod("c", 100), records)
    check_shares(pod("d", 100, whole=True), [PodRecord(pod=pod("e", 100))])


def test_who_came_back_while_leaving_is_asked_again() -> None:
    """The share of an unregistered pod goes to others, so it must fit anew when it is registered again."""
    records = [PodRecord(pod=pod("a", 60), leaving=True), PodRecord(pod=pod("b", 60))]
    with pytest.raises(InputError, match="give at most 40"):
        check_shares(pod("a", 60), records)


def test_what_stands_is_never_refused() -> None:
    """A pod that stands past 100, admitted by an older broker, may keep or lower its share, and not raise it."""
    records = [PodRecord(pod=pod("a", 80)), PodRecord(pod=pod("b", 60))]
    check_shares(pod("b", 60), records)
    check_shares(pod("b", 50), records)
    with pytest.raises(InputError, match="to 141; give at most 60"):
        check_shares(pod("b", 61), records)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 100), st.booleans()), max_size=30))
def test_the_sum_never_passes_a_hundred(asked: list[tuple[str, int, bool]]) -> None:
    """After any registrations, changes and removals the standing shares sum to at most 100."""
    records: dict[str, PodRecord] = {}
    for uid, share_pct, leaves in asked:
        if leaves and uid in records:
            records[uid] = PodRecord(pod=records[uid].pod, leaving=True)
            continue
        try:
            check_shares(pod(uid, share_pct), records.values())
        except InputError:
            continue
        records[uid] = PodRecord(pod=pod(uid, share_pct))
        standing = [record.pod for record in records.values() if not record.leaving]
        assert sum(promised_pct(each.containers, GPUS[0]) for each in standing) <= 100


def staged(uid: str, *asked: tuple[int, Lifespan]) -> Register:
    """A pod whose containers have these shares and lifespans, each on both GPUs."""
    plain = pod(uid, *(share_pct for share_pct, _ in asked))
    containers = tuple(
        structs.replace(container, lifespan=lifespan)
        for container, (_, lifespan) in zip(plain.containers, asked, strict=True)
    )
    return structs.replace(plain, containers=containers)


WARM, PROXY, CHECK = Lifespan(0), Lifespan(1, sidecar=True), Lifespan(2)


def test_an_init_container_takes_no_share_from_its_successors() -> None:
    """Shares of containers that never run at once are not summed up, and a sidecar's counts with all later ones."""
    records = [PodRecord(pod=pod("a", 10))]
    check_shares(staged("b", (90, WARM), (20, PROXY), (70, CHECK), (70, MAIN)), records)
    with pytest.raises(InputError) as caught:
        check_shares(staged("b", (90, WARM), (20, PROXY), (75, CHECK), (70, MAIN)), records)
    assert str(caught.value) == (
        "containers[1].lines[0].share_pct: 20 brings the shares promised of GPU-aaaa to 105;"
        " give at most 15, or unregister one of a (10)"
    )
    with pytest.raises(InputError, match=r"containers\[0\].* 91 brings .* to 101; give at most 90"):
        check_shares(staged("b", (91, WARM), (20, MAIN)), records)
    named = PodRecord(pod=staged("b", (90, WARM), (20, MAIN)))
    with pytest.raises(InputError, match=r"give at most 10, or unregister one of b \(90\)"):
        check_shares(pod("a", 11), [named])


def test_a_record_of_an_earlier_broker_is_read() -> None:
    """A record without lifespans holds ordinary containers, and one with lifespans is read back."""
    given = PodRecord(pod=staged("a", (30, WARM), (20, PROXY), (10, MAIN)))
    assert json.decode(json.encode(given), type=PodRecord) == given
    earlier = json.decode(json.encode(given))
    for container in earlier["pod"]["containers"]:
        container.pop("lifespan", None)
    read = json.decode(json.encode(earlier), type=PodRecord)
    assert [container.lifespan for container in read.pod.containers] == [MAIN] * 3


def test_a_container_has_the_same_share_of_each_of_its_gpus() -> None:
    """A container with different shares or limits on its GPUs is refused, as it is held on all of them or none."""
    lines = (
        Line(gpu=GPUS[0], line_bytes=1, share_pct=30, limit_pct=80),
        Line(gpu=GPUS[1], line_bytes=1, share_pct=30, limit_pct=90),
    )
    uneven = ContainerLines(name=ContainerName("main"), lines=lines)
    with pytest.raises(InputError, match=r"containers\[0\].lines\[1\].limit_pct: 90 differs from the 80"):
        check(Register(pod=PodUid("a"), namespace="n", name="a", containers=(uneven,)))
