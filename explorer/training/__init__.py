"""The race: designs trained side by side on the same batches, step by step, with instruments on.

`recipe`, `tasks` and `history` are settings and numbers, and do not import torch: a page may show
them at once."""
