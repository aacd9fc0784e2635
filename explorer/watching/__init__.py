"""Watching a training run from beside it: any model's signal, gradients, updates and attention, over steps."""

from explorer.watching.handle import Watch, watch

__all__ = ["Watch", "watch"]
