"""Measures our own model: what passes its taps, layer by layer, over several seeds, without altering it."""

from explorer.measuring.measure import measure
from explorer.stopping import Stopped

__all__ = ["Stopped", "measure"]
