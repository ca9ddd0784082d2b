"""The plugins of the scheduler: each is one rule of placement, by its name in Kubernetes."""
