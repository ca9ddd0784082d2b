"""The broker seen from outside: its wire messages, its client, and the binary pages of its container files."""
