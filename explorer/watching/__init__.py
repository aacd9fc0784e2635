"""Watching a training run from beside it: any model's signal, gradients, updates and attention, over steps."""

from explorer.watching.begin import watch
from explorer.watching.handle import Watch

__all__ = ["Watch", "watch"]
