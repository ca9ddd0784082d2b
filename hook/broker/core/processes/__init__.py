"""The processes that run under the library: their containers, and their deaths."""
