"""The broker's knowledge and decisions: events and `now` in, instructions out.

Nothing here uses an event loop, socket, clock, file or process; import-linter checks that. Only the core numbers
announcements and decides the order of the journal.
"""
