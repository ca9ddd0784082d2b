"""What the library and the broker cost a program, and how exactly they hold it: its memory, and its share.

`memory` and `share` are benchmarks; `gpu_node` and `task.h` serve both.
"""
