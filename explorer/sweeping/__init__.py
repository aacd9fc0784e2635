"""Sweeps: designs over one to three fields, predicted, measured or trained, on this machine or on a cluster.

`cell` is one point and how it is found, `grid` all of them, `engine` hands them to `workers` (of this machine's `pool`,
or of a `cluster`), `store` keeps them, `layout` makes them a dataset, and `sweeps` is the public `sweep`.
"""
