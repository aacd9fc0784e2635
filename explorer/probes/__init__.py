"""Reading what a signal does, layer by layer, without altering it."""

from explorer.probes.measure import measure
from explorer.probes.observe import Stopped

__all__ = ["Stopped", "measure"]
