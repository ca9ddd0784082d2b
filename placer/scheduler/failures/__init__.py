"""The reasons why pods fit nowhere: found once for each kind of pods, and renewed when nodes change.

`refusals` explains each refused pod and parks it by its kind; `renewal` renews the reasons of parked pods. People
get the texts through `placer.scheduler.reporting`. Not here: the decision that refuses a pod (`choice`).
"""
