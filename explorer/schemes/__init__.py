"""The designs: one row each, with its formula, its words, its source and its law; and the presets, made of them.

A table is a plain dict, and what `Config` accepts, the controls offer, the model builds and the theory predicts is read
from it when it is asked for: a row that is added is there, everywhere. Nothing decides by a row's name.

Rows see a config only as an `Experiment`; they import neither torch nor `Config`.
"""

from __future__ import annotations

from typing import Protocol


class Experiment(Protocol):
    """The fields of a config that the rows' formulas read."""

    @property
    def n_layers(self) -> int: ...

    @property
    def d_model(self) -> int: ...

    @property
    def n_heads(self) -> int: ...

    @property
    def d_head(self) -> int: ...

    @property
    def kv_heads(self) -> int: ...

    @property
    def n_streams(self) -> int: ...

    @property
    def alpha(self) -> float: ...

    @property
    def attention(self) -> str: ...

    @property
    def mlp(self) -> str: ...

    @property
    def ssmax_scale(self) -> float: ...

    @property
    def input_correlation(self) -> float: ...
