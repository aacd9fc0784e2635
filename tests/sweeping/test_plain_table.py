"""A sweep's numbers as plain arrays, and what needs xarray and zarr where neither is."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
from small_sweeps import OVER, SMALL

from explorer.figures.map import heat_map
from explorer.sweeping.sweeps import Sweep
from explorer.sweeping.table import Table
from explorer.sweeping.workers import Here


def test_a_table_is_the_dataset_s() -> None:
    one = Sweep(SMALL, OVER, ["second_moment", "second_moment@resid_post"], Here()).run()
    dataset = one.dataset()
    table, other = one.table(), Table.of(dataset)
    assert (table.origins, dict(table.over)) == (other.origins, dict(other.over))
    assert set(table.values) == set(other.values)
    assert "second_moment@resid_post" not in table.values
    for name, values in table.values.items():
        np.testing.assert_array_equal(values, other.values[name])
    frame = dataset.drop_vars("second_moment@resid_post").drop_dims("layer").to_dataframe()
    pd.testing.assert_frame_equal(
        table.frame(), frame.reset_index()[table.frame().columns], check_dtype=False
    )


def test_a_table_is_drawn_as_its_dataset() -> None:
    one = Sweep(SMALL, OVER, ["second_moment"], Here()).run()
    axes = {"x": "alpha", "y": "n_layers"}
    drawn = heat_map(one.table(), "second_moment", **axes).to_plotly_json()
    assert str(drawn) == str(heat_map(one.dataset(), "second_moment", **axes).to_plotly_json())


WITHOUT = """
import sys

sys.modules["xarray"] = sys.modules["zarr"] = None
import explorer as ex
from explorer.app.map.panel import MapPanel
from explorer.figures.map import heat_map
from explorer.sweeping.workers import Here

config = ex.Config(n_layers=2, d_model=16, n_heads=2, n_ctx=8, n_seeds=1)
over = {"alpha": [0.5, 1.0], "n_layers": [1, 2]}
one = ex.Sweep(config, over, ["second_moment"], Here()).run()
heat_map(one.table(), "second_moment", x="alpha", y="n_layers")
MapPanel()
for make in (lambda: ex.sweep(config, over), lambda: ex.Sweep(config, over, store="here")):
    try:
        make()
    except ex.ConfigError as error:
        print(error)
"""


def test_a_map_needs_neither_and_a_sweep_says_how_to_install_them() -> None:
    told = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True
    )
    install = "pip install 'transformer-signal-explorer[sweeps]' installs it"
    assert told.stdout.splitlines() == [
        f"xarray must be installed for a labelled dataset; got none: {install}",
        f"zarr must be installed for a store; got none: {install}",
    ]
