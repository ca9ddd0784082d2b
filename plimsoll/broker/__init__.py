"""The broker's interfaces: its control socket's messages, its client, and the binary files of its containers."""
