"""The differential test against kube-scheduler on many seeds."""
