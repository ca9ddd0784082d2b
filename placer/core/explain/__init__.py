"""The pure part of explanations: what must be freed for a pod that waits, and what may slow one that runs."""
