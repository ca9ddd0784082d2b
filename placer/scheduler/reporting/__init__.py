"""Reports to people: results of decisions, reasons why pods wait, and explanations.

`results` reports each result, and `record` writes it to the API server: as an event (`pod_events`) and in the pod's
`PodScheduled` condition (`condition`). `explain` answers about one pod, with its place in the queue (`standing`), and
`live` lists the pods of the live page. Nothing here changes a decision.
"""
