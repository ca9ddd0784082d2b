"""The placer in a Kubernetes cluster: the scheduler, its doors and its controllers, wired together and run.

Here: the lifecycle (`app`), the parts and who listens to whom (`parts`, `options`), answers to people (`explain`,
`live`, `queue_position`, and whether they may ask: `reviews`), and two small controllers (`evictions`, `pool`).
Not here: the scheduler itself (`placer.scheduler`).
"""
