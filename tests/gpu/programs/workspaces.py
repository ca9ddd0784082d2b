"""cuBLAS and cuDNN workspaces: a handle per stream, several types, and cuDNN's search for its best algorithm."""

import torch  # type: ignore[import-not-found]

from tests.gpu.programs.torchphases import run

torch.backends.cudnn.benchmark = True
TYPES = (torch.float32, torch.float16, torch.bfloat16)
streams = [torch.cuda.Stream() for _ in range(4)]
matrices = {kind: torch.randn(1024, 1024, device="cuda").to(kind) for kind in TYPES}
convolution = torch.nn.Conv2d(64, 128, 5, padding=2).cuda()
images = torch.randn(16, 64, 56, 56, device="cuda", requires_grad=True)


def step() -> float:
    """Multiply matrices on each stream, and run a convolution forward and backward."""
    torch.cuda.synchronize()
    total = 0.0
    for stream in streams:
        with torch.cuda.stream(stream):
            total += sum(float((matrix @ matrix).float().mean().item()) for matrix in matrices.values())
    result = convolution(images).mean()
    result.backward()
    return total + float(result.item())


run(step)
