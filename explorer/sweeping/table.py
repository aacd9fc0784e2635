"""`Table`: the numbers of a sweep as plain arrays; figures and files are made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from explorer.choices import ConfigError

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

EXTRA = "pip install 'transformer-signal-explorer[sweeps]'"


@dataclass(frozen=True, eq=False)
class Table:
    """The numbers of a sweep, or its texts, as an array `[origin, *over]` for each name."""

    origins: tuple[str, ...]
    over: Mapping[str, Sequence[Any]]
    """Field to its values, in the order of the arrays' axes."""
    values: Mapping[str, NDArray[Any]]

    @classmethod
    def of(cls, dataset: xr.Dataset) -> Table:
        """The table of a dataset of `explorer.sweep`; statistics of every layer are left out."""
        fields = [str(name) for name in dataset.dims if name not in ("origin", "layer")]
        axes = ("origin", *fields)
        values = {
            str(name): dataset[name].transpose(*axes).values
            for name in dataset.data_vars
            if set(dataset[name].dims) == set(axes)
        }
        over = {name: dataset[name].values.tolist() for name in fields}
        return cls(tuple(map(str, dataset["origin"].values)), over, values)

    def frame(self) -> pd.DataFrame:
        """A cell a row: its origin, its values of the fields, and its numbers."""
        import pandas as pd

        names = ["origin", *self.over]
        cells = pd.DataFrame(list(product(self.origins, *self.over.values())), columns=names)
        return cells.assign(**{name: values.ravel() for name, values in self.values.items()})


def imported(package: str, user: str) -> Any:
    """Imports a package of the extra `sweeps`.

    Args:
        package: its name.
        user: needs it, in the words of a sentence: "a store".
    Raises:
        ConfigError: it is not installed; says how it is.
    """
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise ConfigError(
            f"{package} must be installed for {user}; got none: {EXTRA} installs it"
        ) from None
