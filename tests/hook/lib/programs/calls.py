"""The functions that every script calls: the driver's by their names, and helpers for contexts, memory and pools."""
# ruff: noqa: F401 - the statements of tests use these names

import ctypes
import os
import sys
import threading
import time
from ctypes import byref, c_void_p

from tests.programs.cuda import INT, MIB, PTR, SIZE, U64, UINT, CudaError, cuda, library
from tests.programs.structures import (
    Access,
    Form,
    HandleProps,
    Location,
    NodeProps,
    Opaque,
    PoolProps,
)

call = cuda.raw
make = cuda.make
context = cuda.context


def must(name: str, *args: object) -> None:
    """Calls a function that must succeed."""
    getattr(cuda, name)(*args)


def pool_on(device: int, location_type: int = 1) -> c_void_p:
    """A new pool."""
    return make("cuMemPoolCreate", byref(PoolProps(1, 0, Location(location_type, device))))


def hold_all(pool: c_void_p) -> None:
    """Has a pool keep all that it ever got."""
    must("cuMemPoolSetAttribute", pool, 4, byref(U64(2**64 - 1)))


def default_pool(device: int = 0) -> c_void_p:
    """A GPU's own pool."""
    return make("cuDeviceGetDefaultMemPool", device)


def take(size: int, stream: c_void_p | None = None) -> tuple[int, int]:
    """Allocates in the order of a stream: code and address."""
    address = U64()
    return call("cuMemAllocAsync", byref(address), SIZE(size), stream), address.value


def take_from(pool: c_void_p, size: int, stream: c_void_p | None = None) -> tuple[int, int]:
    """Allocates from a pool: code and address."""
    address = U64()
    return call("cuMemAllocFromPoolAsync", byref(address), SIZE(size), pool, stream), address.value


def alloc(size: int) -> tuple[int, int]:
    """Allocates: code and address."""
    address = U64()
    return call("cuMemAlloc_v2", byref(address), SIZE(size)), address.value


def free(address: int, stream: c_void_p | None = None) -> None:
    """Frees in the order of a stream."""
    must("cuMemFreeAsync", U64(address), stream)


def sync() -> None:
    """Waits for all work of the current context."""
    must("cuCtxSynchronize")
