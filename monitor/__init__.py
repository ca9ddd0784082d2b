"""The node: samples its GPUs, follows each task through its life, and publishes what happened."""
