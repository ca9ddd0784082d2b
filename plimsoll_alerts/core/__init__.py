"""Pure: messages and times in, alerts out. No loop, socket, clock or randomness."""
