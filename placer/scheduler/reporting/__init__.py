"""Reports to people: results of decisions, and reasons why pods wait.

`results` reports each result, and `record` writes it to the API server: as an event (`pod_events`) and in the pod's
`PodScheduled` condition (`condition`). Not here: explanations of one pod (`placer.kube.explain`) and the list of the
live page (`placer.kube.live`). Nothing here changes a decision.
"""
