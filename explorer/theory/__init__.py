"""Predictions for a Transformer at initialization: numpy and scipy, no model, no torch."""

from explorer.theory.predict import initial_loss, predict
from explorer.theory.solve import Solution, solve

__all__ = ["Solution", "initial_loss", "predict", "solve"]
