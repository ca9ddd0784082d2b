"""The engine: a queue of events over time, one GPU whose memory is asked for, and who gives it.

Nothing here reads a clock or draws at random; import-linter holds it to that. The same containers under the same
giver always end the same way.
"""
