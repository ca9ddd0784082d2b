"""The engine: a queue of events over time, a GPU, and the rules that give its memory to containers.

Nothing here reads a clock or draws at random; import-linter checks that. The same containers under the same giver
always end the same way.
"""
