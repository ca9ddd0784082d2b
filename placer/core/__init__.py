"""The placer's pure core: views and bookings in, plans with their reasons out.

Nothing here awaits, reads a clock, or draws at random, so a decision can be replayed from its inputs. One
decision runs without interruption between reading the ledger and booking in it: that is what makes two pods
that arrive in the same second see each other.
"""
