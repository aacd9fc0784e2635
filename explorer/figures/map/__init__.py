"""Maps: a statistic over two fields, measured colors under the theory's contour lines."""

from explorer.figures.map.picture import heat_map, over

__all__ = ["heat_map", "over"]
