"""The admission webhook: `python -m placer.webhook`, a process of its own.

The API server asks it about pods before it stores them. Here: what a pod must have and must not have
(`core.judgement`), what is put into it (`core.injection`), the API server's question and our answer (`core.review`,
`core.json_patch`), the life of the certificate (`core.generations`, `certificate`), the Secret that all replicas
share and the CA bundle in the webhook's configuration (`authority`), and HTTPS (`server`). Not here: the contract
of a pod (`plimsoll.contract`, `plimsoll.demand`), and the ways of other schedulers (`plimsoll.dialects`).

What always holds: an answer depends on the review alone, so replicas need not agree on anything. A pod that was
changed once is not changed again. The webhook reads no pod and writes no pod by itself.

Rights needed: in its own namespace, secrets: create, and get and patch of one. Cluster-wide, get and patch of its own
mutatingwebhookconfigurations. `deploy/webhook.yaml` grants them.
"""
