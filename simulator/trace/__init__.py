"""Traces of clusters, replayed pod by pod through the placer's own cores: ledger, candidates, plan and policies.

The protocol is that of Weng et al. (USENIX ATC 2023) and of their simulator, so that figures can be compared with the
published ones: pods are drawn by seed until they ask for 130 % of the GPUs, each is placed on arrival or fails for
ever, and none ends. CPU and memory of the nodes bind as in Kubernetes; the memory of GPUs does not.
"""
