"""Reading what a signal does, layer by layer, without altering it."""

from explorer.probes.measure import measure
from explorer.stopping import Stopped

__all__ = ["Stopped", "measure"]
