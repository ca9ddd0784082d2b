"""The demo: three emulated nodes, real servers, and a table of what happens on them."""
