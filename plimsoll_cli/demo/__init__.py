"""The demo: three emulated nodes, real servers, and a live table of nodes and pods."""
