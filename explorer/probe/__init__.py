"""Reading what a signal does, layer by layer, without altering it."""

from explorer.probe.measure import Stopped, measure

__all__ = ["Stopped", "measure"]
