"""The Transformer under study, written out: every choice of `Config` visible, every site shown to a
tap."""

from explorer.model.taps import ignore
from explorer.model.transformer import Layer, MixingLayer, Transformer, draw_weights

__all__ = ["Layer", "MixingLayer", "Transformer", "draw_weights", "ignore"]
