"""The models that an owner's pods have, in whatever order pods and reports come."""

from dataclasses import dataclass, field

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from placer.core.owner_models import OwnerModels
from plimsoll.ids import GpuUuid, PodUid
from tests.placer.core.worlds import gpu, state

GPUS = {"g0": "NVIDIA L4", "g1": "NVIDIA L4", "g2": "NVIDIA A10"}
PODS = ("p0", "p1", "p2")


@dataclass(slots=True)
class Plain:
    """The same by looking at every pod."""

    reported: set[str] = field(default_factory=set)
    pods: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def of(self, beside: str) -> set[str]:
        """The models of all pods but one."""
        others = (given for pod, given in self.pods.items() if pod != beside)
        return {GPUS[gpu] for given in others for gpu in given if gpu in self.reported}


steps = st.lists(
    st.one_of(
        st.tuples(st.just("report"), st.sampled_from(sorted(GPUS)), st.just(())),
        st.tuples(st.just("add"), st.sampled_from(PODS), st.lists(st.sampled_from(sorted(GPUS)), max_size=3)),
        st.tuples(st.just("remove"), st.sampled_from(PODS), st.just(())),
    ),
    max_size=20,
)


@given(steps)
def test_models_are_those_of_the_owners_other_pods(taken: list[tuple[str, str, list[str]]]) -> None:
    """After any pods and reports, each pod's answer is the reported models of the others, and none once all left."""
    models, plain = OwnerModels(), Plain()
    for step, name, gpus in taken:
        if step == "report":
            models.learn(state("n", msgspec.structs.replace(gpu(name), model=GPUS[name])))
            plain.reported.add(name)
        models.remove("owner", PodUid(name))
        plain.pods.pop(name, None)
        if step == "add":
            models.add("owner", PodUid(name), map(GpuUuid, gpus))
            plain.pods[name] = tuple(gpus)
        for pod in PODS:
            assert models.of("owner", PodUid(pod)) == plain.of(pod)
    assert models.of(None, PodUid("p0")) == models.of("another", PodUid("p0")) == frozenset()
