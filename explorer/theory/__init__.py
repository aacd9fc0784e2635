"""Predictions for a Transformer at initialization: numpy and scipy, no model, no torch."""

from explorer.theory.predict import predict
from explorer.theory.solve import Solution, solve

__all__ = ["Solution", "predict", "solve"]
