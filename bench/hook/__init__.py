"""The costs of library and broker for a program, and the accuracy of the memory line and of compute shares.

`memory` and `share` are benchmarks; `gpu_node` and `task.h` serve both.
"""
