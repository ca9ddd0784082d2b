"""The webhook's answers at a fixed rate of reviews over TLS.

`reviews` makes reviews of realistic pods, `process` runs the webhook, and `load` sends reviews to it at the rate.
"""
