"""Settings that cannot work are refused by their variable's name."""

import pytest

from placer.webhook.core.judgement import AdmissionRules, GpuAccess
from placer.webhook.settings import PREFIX, Settings, load, rules_of
from plimsoll.dialects.gpushare import Gpushare
from plimsoll.dialects.hami import Hami
from plimsoll.dialects.kai import Kai
from plimsoll.part.errors import InputError


def loaded(**given: str) -> Settings:
    """Settings from these variables, without their prefix."""
    return load({PREFIX + name.upper(): value for name, value in given.items()})


def test_the_defaults_work() -> None:
    """Without any variable, no dialect is on, and a runtime class is set."""
    assert loaded() == Settings()
    assert rules_of(loaded()) == AdmissionRules()


def test_each_choice_reaches_the_rules() -> None:
    """Dialects, extenders and the way of GPUs, each by a setting of its own."""
    given = loaded(
        hami="true",
        gpushare="MiB",
        kai="1",
        extended_schedulers=" default-scheduler, other ",
        gpu_access="none",
        runtime_class="gpu",
    )
    dialects = (Hami(), Gpushare("MiB"), Kai())
    assert rules_of(given) == AdmissionRules(("default-scheduler", "other"), GpuAccess.NONE, "gpu", dialects)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"certificate_life_s": "5999"}, "PLIMSOLL_WEBHOOK_CERTIFICATE_LIFE_S: .* is no setting of Plimsoll"),
        ({"extended_schedulers": "plimsoll"}, "names the placer's own scheduler"),
        ({"gpu_access": "magic"}, "PLIMSOLL_WEBHOOK_GPU_ACCESS: 'magic' is refused"),
        ({"gpushare": "GB"}, "PLIMSOLL_WEBHOOK_GPUSHARE: 'GB' is refused"),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, str], message: str) -> None:
    """Variable, value and remedy."""
    with pytest.raises(InputError, match=message):
        loaded(**given)
