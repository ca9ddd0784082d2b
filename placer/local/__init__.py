"""The placer's front end without Kubernetes: pods from manifests, as processes on nodes of this machine, hooked.

Here belong manifests, processes and the lifecycle of their pods. The decision is `placer.core`'s. CPU and memory of
the machine are not considered. Nothing here needs root.
"""
