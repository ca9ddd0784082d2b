"""The front end without Kubernetes: pods from manifests, as processes on nodes of this machine, under the hook.

Here belong manifests, processes and their pods' life; deciding is `placer.core`'s, and CPU or memory of the
machine are not considered. Nothing here needs root.
"""
