"""Answers to people and programs: reads over HTTP.

`http` has the routes, `access` says who may read, `queries` reads parameters, `node_rows` and `state` make the
answers, and `sources` and `explaining` let front ends add theirs. The wire types are in
`plimsoll.placer_api`.
"""
