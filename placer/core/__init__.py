"""The placer's pure core: views and bookings in, plans with their reasons out.

Nothing here awaits, reads a clock, or draws at random, so a decision can be replayed from its inputs. No other task
runs between a decision's reading of the ledger and its booking there. Therefore two pods that arrive in the same
second see each other's bookings.
"""
