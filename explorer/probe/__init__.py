"""Reading what a signal does, layer by layer, without altering it."""

from explorer.probe.measure import measure
from explorer.probe.observe import Stopped

__all__ = ["Stopped", "measure"]
