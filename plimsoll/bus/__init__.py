"""The event bus: NATS with one JetStream stream.

`subjects` has the names, `stream` the stream's settings, `consumers` what readers of the stream need, and `access`
the credentials. `client` is a client that comes back from every loss of its server. The events themselves are in
`plimsoll.events`.
"""
