"""What the broker knows and decides: events and `now` in, instructions out.

No loop, socket, clock, file or process here; import-linter holds it to that. Sequence numbers and the order
of the journal are decided here and nowhere else.
"""
