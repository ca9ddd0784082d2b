"""Kang et al. 2024, Tables IV and V, on emulated cards: free slots against Plimsoll. `card` has Table I."""
