"""PyTorch eager: a small convolutional net, trained a step at a time."""

import torch  # type: ignore[import-not-found]

from tests.gpu.programs.torchphases import run

net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 64, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.Conv2d(64, 64, 3, padding=1),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
    torch.nn.Linear(64, 10),
).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
images, labels = torch.randn(32, 3, 64, 64, device="cuda"), torch.randint(0, 10, (32,), device="cuda")


def step() -> float:
    """Train one step; returns the loss."""
    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(net(images), labels)
    loss.backward()
    optimizer.step()
    return float(loss.item())


run(step)
