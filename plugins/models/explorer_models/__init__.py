"""Instruments for models that are not ours: `probe`, its `twin`, and `watch` beside a training
loop.

The plug-in is this file's `PLUGIN`. What the instruments say of a model stands in `texts.toml`."""

from __future__ import annotations

from explorer.plugins import Plugin

PLUGIN = Plugin(
    names={
        "CoordCheck": "explorer_models.coordinates:CoordCheck",
        "Start": "explorer_models.starts:Start",
        "Twin": "explorer_models.twin:Twin",
        "Watch": "explorer_models.watch:Watch",
        "coord_check": "explorer_models.coordinates:coord_check",
        "expect": "explorer_models.starts:expect",
        "probe": "explorer_models.probe:probe",
        "twin": "explorer_models.probe:twin",
        "watch": "explorer_models.watch:watch",
    },
    tabs={"yours": "explorer_models.page:TAB"},
    commands="explorer_models.command:add_commands",
    kinds={"example": "explorer_models.example:compute"},
    drawers={"CoordCheck": "explorer_models.figures:plot"},
)
