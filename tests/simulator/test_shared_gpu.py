"""Jobs that share a GPU have the speeds that the broker's share core gives them."""

import pytest

from simulator.core.shared_gpu import Load, speeds, used_parts


@pytest.mark.parametrize(
    ("loads", "parts"),
    [
        ([], []),
        ([Load(45, 75)], [0.75]),
        ([Load(45, 75), Load(45, 75)], [0.5, 0.5]),
        ([Load(60, 100), Load(40, 100)], [0.6, 0.4]),
        ([Load(30, 30), Load(20, 20), Load(40, 40)], [0.3, 0.2, 0.4]),
        ([Load(30, 100, 60)], [0.6]),
        ([Load(30, 100, 60), Load(40, 100, 60)], [0.5, 0.5]),
        ([Load(30, 100, 60), Load(40, 100, 60), Load(30, 100, 50)], [0.3, 0.4, 0.3]),
    ],
)
def test_parts_of_a_gpu(loads: list[Load], parts: list[float]) -> None:
    """Each job gets its request, no more than its limit, and an even part of the rest (KubeShare, Figure 6)."""
    assert used_parts(loads) == pytest.approx(parts, abs=0.03)


def test_speed_is_the_part_against_that_of_the_job_alone_and_does_not_depend_on_the_order() -> None:
    """Two jobs that want three quarters each take 1.5 times as long; jobs that fit together lose nothing."""
    light, heavy = Load(30, 20), Load(45, 75)
    assert speeds([heavy, heavy]) == pytest.approx([2 / 3, 2 / 3], abs=0.03)
    assert speeds([light, heavy]) == pytest.approx([1.0, 1.0], abs=0.03)
    assert speeds([heavy, light]) == tuple(reversed(speeds([light, heavy])))
