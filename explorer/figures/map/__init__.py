"""Maps: a statistic over two fields, measured colors under the theory's contour lines."""

from explorer.figures.map.marks import border
from explorer.figures.map.picture import heat_map

__all__ = ["border", "heat_map"]
