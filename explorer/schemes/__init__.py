"""The designs: one row each, with its formula, its words, its source and its law; and the presets,
made of them.

A table is a plain dict, and what `Config` accepts, the controls offer, the model builds and the
theory predicts is read from it when it is asked for: a row that is added is there, everywhere.
Nothing decides by a row's name.

Rows' formulas read the `Settings` that they are handed; they import neither torch nor `Config`.
"""
