"""Resizes of bound pods: `tickets` takes and answers the requests, `resize` carries one out in a single write."""
