"""The CSI node service: the inline volume by which pods of a cluster get their pages and the library.

Here: the mounts of a volume (`volumes`), the installed library (`library`), the gRPC messages (`messages`, made by
`protobuf`) and the two servers that the kubelet calls (`service`). The decisions about
mounts are pure, in `hook.broker.core.volume`. A pod's lines are not here: `hook.broker.pods` lays them out, and
records that in `hook.broker.layouts`.

What always holds: a pod starts only after its lines are laid out. The uid comes from the path that the kubelet asks
for, and no attribute that a pod's author writes is read.
"""
