"""torch.compile: kernels compiled at run time and loaded as modules."""

import torch  # type: ignore[import-not-found]

from tests.gpu.programs.torchphases import run

net = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.GELU(), torch.nn.Linear(512, 512)).cuda()
compiled = torch.compile(net)
inputs = torch.randn(64, 512, device="cuda")


def step() -> float:
    """Run forward and backward; returns the loss."""
    net.zero_grad(set_to_none=True)
    loss = compiled(inputs).square().mean()
    loss.backward()
    return float(loss.item())


run(step)
