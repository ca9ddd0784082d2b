"""Whether processes hold what their counts say, judged by what NVML measured."""
