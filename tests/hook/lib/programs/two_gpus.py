"""Allocations on one of two GPUs."""

from tests.hook.lib.programs.calls import make, must
from tests.programs.cuda import MIB, SIZE
from tests.programs.structures import FlatForm, Form, HandleProps, Location

ROWS = 64 * MIB // 4096

form, flat, pitch = Form(1024, ROWS, 0, 0x20, 1, 0), FlatForm(1024, ROWS, 0x20, 1), SIZE()
props = HandleProps(1, 0, Location(1, 1))
first, second = (make("cuDevicePrimaryCtxRetain", device) for device in (0, 1))
must("cuCtxSetCurrent", second)
other_stream = make("cuStreamCreate", 1)
must("cuCtxSetCurrent", first)
