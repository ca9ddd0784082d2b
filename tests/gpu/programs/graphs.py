"""CUDA graphs, captured once over torch's private pool and replayed."""

import torch  # type: ignore[import-not-found]

from tests.gpu.programs.torchphases import run

net = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)).cuda()
inputs = torch.randn(256, 1024, device="cuda")
graph = torch.cuda.CUDAGraph()

side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.no_grad():
    with torch.cuda.stream(side):
        for _ in range(3):
            net(inputs)
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        outputs = net(inputs)


def step() -> float:
    """Replay once on fresh inputs; returns a number from the output."""
    inputs.normal_()
    graph.replay()
    return float(outputs.square().mean().item())


run(step)
