"""The race: designs trained side by side on the same batches, step by step, with instruments on.

The plug-in is this file's `PLUGIN`. `recipe`, `tasks` and `history` are settings and numbers, and
do not import torch: a page may show them at once."""

from __future__ import annotations

from explorer.plugins import Plugin

PLUGIN = Plugin(
    names={
        "Contender": "explorer_race.race:Contender",
        "Race": "explorer_race.race:Race",
        "Recipe": "explorer_race.recipe:Recipe",
        "Task": "explorer_race.tasks:Task",
        "Training": "explorer_race.cells:Training",
        "race": "explorer_race.race:race",
    },
    tabs={"race": "explorer_race.page.tab:TAB"},
    kinds={"race": "explorer_race.telling:compute"},
    origins={"trained": "explorer_race.cells:TRAINED"},
    trainers={"config": "explorer_race.trainee:TRAINER"},
    scales={
        "held_out_loss": "explorer_race.scales:HELD_OUT_LOSS",
        "loss_drop": "explorer_race.scales:LOSS_DROP",
        "feature_change": "explorer_race.scales:FEATURE_CHANGE",
    },
    setups={"race": "explorer_race.page:SETUPS"},
    page={"race": "explorer_race.page:FOLDER"},
    drawers={"Race": "explorer_race.figures:plot"},
)
