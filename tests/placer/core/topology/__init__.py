"""The links between GPUs, the access cost tree, and the sets that containers get."""
