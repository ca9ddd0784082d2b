"""Every well-formed review gets a well-formed answer, and every other body is refused."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.webhook.core.judgement import AdmissionRules
from placer.webhook.core.review import NoReviewError, answer
from plimsoll.dialects import Json
from plimsoll.dialects.gpushare import Gpushare
from plimsoll.dialects.hami import Hami
from plimsoll.dialects.kai import Kai
from tests.placer.webhook.core.pods import container, gpu_pod, pod
from tests.placer.webhook.core.reviews import ANYTHING, assert_well_formed, damaged, patch_of, review
from tests.placer.webhook.core.test_json_patch import applied
from tests.slow import examples

ALL_DIALECTS = AdmissionRules(dialects=(Hami(), Gpushare(), Kai()))
UID = review({})["request"]["uid"]


@given(damaged())
@settings(max_examples=examples(400))
def test_every_review_gets_a_well_formed_answer(damaged_review: Json) -> None:
    """Whatever stands in a pod, the answer is one that the API server understands, and its patch applies."""
    for rules in (AdmissionRules(), ALL_DIALECTS):
        answered = answer(json.dumps(damaged_review).encode(), rules)
        assert_well_formed(answered.body, UID)
        patch = patch_of(answered.body)
        if patch:
            patched = applied(patch, damaged_review["request"]["object"])
            again = answer(json.dumps(review(patched)).encode(), rules)
            if damaged_review["request"]["operation"] == "CREATE":
                assert again.outcome == "unchanged"


@given(st.binary(max_size=64) | ANYTHING.map(lambda value: json.dumps(value).encode()))
def test_a_body_that_is_no_review_is_refused(body: bytes) -> None:
    """Bytes and JSON of any other form raise the one error for it."""
    with pytest.raises(NoReviewError):
        answer(body, AdmissionRules())


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"request":' * 50_000,
        b'{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"u"}}',
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":""}}',
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":1}}',
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}',
    ],
)
def test_other_versions_and_forms_are_no_reviews(body: bytes) -> None:
    """A body too deep, of another version, or without a uid has no answer."""
    with pytest.raises(NoReviewError):
        answer(body, AdmissionRules())


def test_an_object_nested_too_deeply_is_refused_as_no_pod() -> None:
    """The review itself is well-formed, or refused as none; nothing else happens."""
    deep = json.dumps(review("HERE")).encode().replace(b'"HERE"', b"[" * 5000 + b"]" * 5000)
    try:
        answered = answer(deep, AdmissionRules())
    except NoReviewError:
        return
    assert answered.outcome == "refused"


def test_other_kinds_and_operations_are_allowed() -> None:
    """A configuration that sends too much stops nothing."""
    deployment: dict[str, Any] = review({"kind": "Deployment"})
    deployment["request"]["kind"]["kind"] = "Deployment"
    for one in (deployment, review(None, "DELETE", gpu_pod()), review(gpu_pod(), "CREATE", None, "binding")):
        assert answer(json.dumps(one).encode(), AdmissionRules()).outcome == "unchanged"


def test_warnings_are_bounded() -> None:
    """However many containers have something to tell, the API server keeps all that is sent."""
    loud = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    many = pod(*(container(f"c{at}" + "x" * 50, env=loud) for at in range(200)))
    warnings = json.loads(answer(json.dumps(review(many)).encode(), AdmissionRules()).body)["response"][
        "warnings"
    ]
    assert 0 < sum(map(len, warnings)) <= 3072
