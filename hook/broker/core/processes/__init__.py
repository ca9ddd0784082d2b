"""The processes that use the library: which containers they belong to, and when they are gone."""
