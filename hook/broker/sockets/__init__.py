"""The broker's sockets: one for the node's parts, and one for the processes of each container."""
