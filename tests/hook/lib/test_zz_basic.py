from time import sleep, monotonic
import pytest
from plimsoll.layout import GATE_METERED, GATE_OPEN, GATE_SHUT
from tests.hook.lib.gate import GateWriter, until
US, MS = 1_000, 1_000_000

@pytest.fixture(name="gate")
def _gate(container):
    return GateWriter(container, GATE_METERED)

@pytest.mark.parametrize("kernel_ns", [20 * US, MS, 20 * MS])
@pytest.mark.parametrize("way", ["queued", "one by one"])
@pytest.mark.parametrize("duty", [1.0, 0.5])
def test_metered(launcher, kernel_ns, way, duty):
    launcher.do("launch(1000); sync()")
    for _ in range(3):
        until(lambda: launcher.work().launched_ns == 0)
        t0,b0=launcher.told_ns(),launcher.executed_ns()
        t=monotonic()
        launcher.do(f"greedy({kernel_ns}, 1.0, {way == 'one by one'}, {duty})")
        t=monotonic()-t
        until(lambda: launcher.work().launched_ns == 0)
        print("METER", kernel_ns, way, duty, "told", (launcher.told_ns()-t0)/1e6, "book", (launcher.executed_ns()-b0)/1e6, "in", round(t*1000), "launches", launcher.launches())

def test_shut(launcher, gate):
    launcher.do("launch(1000); sync()")
    until(lambda: launcher.work().launched_ns == 0)
    gate.set(GATE_SHUT)
    launcher.do("aside(launch, 1000)")
    until(lambda: launcher.work().standing == 1)
    sleep(0.5)
    assert launcher.launches()==1
    gate.set(GATE_METERED)
    assert launcher.get("joined()")==[0]
    until(lambda: launcher.work().standing == 0)

def test_open(launcher, gate):
    gate.set(GATE_OPEN)
    launcher.do("aside(greedy, 1000000, 3)")
    sleep(1)
    gate.set(GATE_SHUT)
    a=launcher.executed_ns()
    sleep(1)
    b=launcher.executed_ns()
    print("OPEN queue executed after shut", (b-a)/1e6, launcher.launches())
    w=launcher.work()
    print({f[0]:getattr(w,f[0]) for f in w._fields_})
    gate.set(GATE_OPEN)
    launcher.do("joined()")
