"""Link matrices as `nvidia-smi topo -m` shows them."""

FIGURE_7 = """
\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity
GPU0\t X \tPHB\tSOC\tSOC\t0-13,28-41
GPU1\tPHB\t X \tSOC\tSOC\t0-13,28-41
GPU2\tSOC\tSOC\t X \tPIX\t14-27,42-55
GPU3\tSOC\tSOC\tPIX\t X \t14-27,42-55
"""
"""Four GPUs on two sockets. Gaia's Figure 7 is a picture; its Tables I and IV require that gpu2 and gpu3 are the
cheapest pair and that gpu0 and gpu1 are a pair too."""

DGX_1V = """
        GPU0    GPU1    GPU2    GPU3    GPU4    GPU5    GPU6    GPU7    mlx5_0  CPU Affinity    NUMA Affinity
GPU0     X      NV1     NV1     NV2     NV2     SYS     SYS     SYS     PIX     0-19,40-59      0
GPU1    NV1      X      NV2     NV1     SYS     NV2     SYS     SYS     PIX     0-19,40-59      0
GPU2    NV1     NV2      X      NV2     SYS     SYS     NV1     SYS     PHB     0-19,40-59      0
GPU3    NV2     NV1     NV2      X      SYS     SYS     SYS     NV1     PHB     0-19,40-59      0
GPU4    NV2     SYS     SYS     SYS      X      NV1     NV1     NV2     SYS     20-39,60-79     1
GPU5    SYS     NV2     SYS     SYS     NV1      X      NV2     NV1     SYS     20-39,60-79     1
GPU6    SYS     SYS     NV1     SYS     NV1     NV2      X      NV2     SYS     20-39,60-79     1
GPU7    SYS     SYS     SYS     NV1     NV2     NV1     NV2      X      SYS     20-39,60-79     1
mlx5_0  PIX     PIX     PHB     PHB     SYS     SYS     SYS     SYS      X

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
"""
"""Eight GPUs in a mesh of NVLinks, which is no tree."""

SWITCHES = """
        GPU0    GPU1    GPU2    GPU3
GPU0     X      PIX     PHB     PXB
GPU1    PIX      X      PXB     PHB
GPU2    PHB     PXB      X      PIX
GPU3    PXB     PHB     PIX      X
"""
"""PXB and PHB between the pairs, so the two orders differ."""
