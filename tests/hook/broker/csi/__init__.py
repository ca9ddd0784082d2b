"""The CSI volume service, as a kubelet meets it."""
