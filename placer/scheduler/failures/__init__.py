"""The failures of attempts: why pods fit nowhere, found once for each signature, and renewed when nodes change.

`handler` explains each refused pod and lets it wait; `renewal` renews the reasons of those that wait. People get the
texts through `placer.scheduler.reporting`. Not here: the decision that refuses a pod
(`placer.scheduler.schedule_pod`).
"""
