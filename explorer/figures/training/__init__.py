"""Pictures of a race: pure functions from a `Course` to plotly figures.

A contender keeps its hue, dash and symbol in every figure. Curves of any length travel as a few hundred points.
`CURVES` and `MAPS` hold one row a picture.
"""

from __future__ import annotations

from explorer.figures.training.course import Course, Track
from explorer.figures.training.curves import CURVES, Curve
from explorer.figures.training.maps import MAPS, Map, layer_map

__all__ = ["CURVES", "MAPS", "Course", "Curve", "Map", "Track", "layer_map"]
