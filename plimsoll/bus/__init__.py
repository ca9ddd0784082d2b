"""The event bus: NATS with one JetStream stream.

`subjects` has the names, `stream` the stream's settings, `access` the credentials, `connection` one connection that
reconnects for ever, and `client` a client that comes back from every loss of its server. The events themselves are in
`plimsoll.events`.
"""
