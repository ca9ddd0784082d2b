"""The differential test: random clusters and pods without a GPU, on which kube-scheduler and the placer must agree.

`features` lists what is drawn, `draw`, `pods` and `domains_volumes` draw it, `ground` makes it real on an API server,
`oracle` asks kube-scheduler, `compare` asks both, and `shrink` makes a difference small enough to read.
"""
