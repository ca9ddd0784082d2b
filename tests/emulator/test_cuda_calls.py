"""The breadth of the API: arrays, boxes, all ways to launch, libraries, pointers, host memory."""

from tests.emulator.cuda_program import MIB, Node


def test_arrays_hold_and_cost_what_they_should(node: Node) -> None:
    """An array is charged and keeps each row that is copied into it; a mipmap costs all its levels."""
    seen = node.python("calls.arrays")
    assert seen == [4 * MIB, True, "CUDA_ERROR_INVALID_VALUE", 10 * MIB, 0]


def test_every_launch_counts(node: Node) -> None:
    """Plain, extended, cooperative and multi-device launches, kernels of libraries, and graphs all count."""
    process = node.python("calls.every_launch", str(node.tool))
    assert process["launches"] == 8
    assert process["busy_ns"] == 8_000_000


def test_pointers_tell_what_they_are(node: Node) -> None:
    """The driver knows device, managed, pooled, page-locked and foreign memory apart."""
    seen = node.python("calls.pointer_attributes")
    assert seen == [
        [[2, False, 7], [2, True, 0], [1, False, 0], [2, False, 0], [1, False, 0], [0, False, 0]],
        True,
        100,
        "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
    ]


def test_a_lost_gpu_answers_with_an_error(node: Node) -> None:
    """After a GPU fell off the bus its contexts fail, and another GPU's contexts go on."""
    seen = node.python("calls.lost_gpu", str(node.tool))
    assert seen == ["CUDA_ERROR_UNKNOWN", "CUDA_SUCCESS", "CUDA_SUCCESS"]


def test_clearing_gigabytes_costs_no_ram(node: Node) -> None:
    """Device memory that holds only zeros is not backed by the host's, however large."""
    resident_bytes = node.python("calls.clear_gigabytes")
    assert resident_bytes < 512 * MIB
