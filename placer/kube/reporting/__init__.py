"""Reports to people: results of decisions, reasons why pods wait, and explanations.

`telling` reports each result, `record` writes it to the API server, by events (`pod_events`) and a condition,
`retelling` gives parked pods their reasons anew, `explain` answers about one pod, and `live` lists the pods of the
live page. Nothing here changes a decision.
"""
