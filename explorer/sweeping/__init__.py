"""Sweeps: designs over one to three fields, predicted, measured or trained, on this machine or on a
cluster.

`cell` is one point and how it is found, `grid` all of them, `workers` compute them, `store` keeps
them, and `sweeps` makes them a dataset: the public `sweep`."""
