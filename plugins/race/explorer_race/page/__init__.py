"""The Race panel."""

from pathlib import Path

FOLDER = Path(__file__).parent
SETUPS = FOLDER / "setups.toml"
