"""The node: samples its GPUs, follows each task through its life, and publishes what happened.

Everything flows one way, a round at a time:

    broker (announcements, counts) ─┐                                    ┌─► outbox ─► publisher ─► NATS
    kernel (deaths)                 ├─► inbox ─┐                         ├─► broker: acknowledgements, measurements
    driver (XID errors)            ─┘          ├─► observer ─► core ─────┼─► advertiser: the node's resources
    driver (samples)        ─► sampler ────────┘                         └─► metrics

`observer` runs the rounds and stores each before anything follows from it. `core` decides: values in, values out.
"""
