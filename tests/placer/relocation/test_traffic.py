"""Memory traffic, from the driver's measurement to the plan of a relocation."""

from pathlib import Path
from typing import NoReturn

from plimsoll_cli.demo.servers import EmbeddedServer
from tests.monitor.emulated import GPU_0, GPU_1, Program, program
from tests.monitor.harness import until
from tests.monitor.test_emulator import newest, node
from tests.placer.kube.objects import SHARE
from tests.placer.kube.preemption_scene import pod, preemption_scene
from tests.placer.relocation.relocations import RULES, mover, plan, relocator_of, wait
from tests.servers.tasks import running


async def again(program: Program, command: str) -> NoReturn:
    """Have a program do the same again and again."""
    while True:
        await program.do(command)


async def test_a_pod_moves_to_the_gpu_whose_memory_is_quiet(tmp_path: Path, nats: EmbeddedServer) -> None:
    """One GPU of a monitor's node has a program that copies, the other one a kernel. The pod moves to the latter."""
    async with (
        node(tmp_path, nats.url, heartbeat_s=0.5) as (_, environment, context),
        program(environment, 0, ["alloc 64"]) as copying,
        program(environment, 1) as computing,
    ):
        # A monitor does not measure the time of its first sample, so both programs go on until a report shows both.
        async with (
            running(again(copying, "copy 64"), "copy"),
            running(again(computing, "launch 0.5"), "launch"),
        ):
            messages = await until(
                context,
                lambda all_: (
                    (newest(all_)[GPU_0].memory_busy_pct or 0) > 0 and newest(all_)[GPU_1].idle_pct < 100
                ),
            )
        assert newest(messages)[GPU_1].memory_busy_pct == 0
    states = [
        one.report.state for one in messages if one.what in ("node.state", "task.started", "task.loaded")
    ]
    async with preemption_scene(RULES) as playing:
        playing.scene.node("n1", labels={"zone": "a"})
        playing.scene.report("n1", 24)
        playing.scene.show(mover("m1", "GPU-n1-0", 50))
        playing.scene.node(states[-1].node)
        playing.scene.reports.apply(states[-1])
        await wait(playing, pod("wide", limits={"cpu": "0", SHARE: "90"}, nodeSelector={"zone": "a"}))
        await plan(playing)
        [kept] = relocator_of(playing).replacements._awaited.values()
        held = playing.scene.cache.nominator.find(kept.pod)
        assert held is not None
        assert held.booking is not None
        assert [grant.gpu for grant in held.booking.grants] == [GPU_1]
