"""The designs: one row each, with its formula, its words, its source and its law; and the presets, made of them.

A table is a plain dict, and what `Config` accepts, the controls offer, the model builds and the theory predicts is read
from it when it is asked for: a row that is added is there, everywhere. Nothing decides by a row's name.

Rows see a config only as an object with its fields; they import neither torch nor `Config`.
"""
