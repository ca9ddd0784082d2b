"""A real node for the tests: kubelet, containerd and runc over the real control plane, with emulated GPUs.

`python -m tests.node` runs this folder's tests in namespaces of its own (mounts, network, processes, host name), so
that everything ends with it, and nothing listens or mounts outside. It needs root and a few of Debian's packages
(`tools/node-packages` installs them). Tests that start a node have the marker `node`; the rest runs with `make test`.
"""
