"""The event bus: NATS with one JetStream stream.

`subjects` has the names, `stream` the stream's settings, `consumers` what readers of the stream need, `messages` what
readers without it need, and `access` the credentials. `client` is a client that comes back from every loss of its
server, and `connection` connects it and logs outages. The events themselves are in `plimsoll.events`.
"""
