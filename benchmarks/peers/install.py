"""`python -m benchmarks.peers.install`: installs the peers beside it, and prints which failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def wanted(text: str) -> dict[str, list[str]]:
    """A requirement's name to the words that pip is told, a line each."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    words = [[line] if " @ " in line else line.split() for line in lines]
    return {line[-1].partition(" @ ")[0].partition("==")[0]: line for line in words}


def main() -> None:
    """Installs them one by one, so that one that fails stops no other."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "-c", "constraints.txt"]
    text = Path(__file__).with_name("requirements.txt").read_text(encoding="utf-8")
    for name, words in wanted(text).items():
        done = subprocess.run(
            [*pip, *words], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False
        )
        if done.returncode:
            print(f"{name} does not install: {done.stderr.strip()}")


if __name__ == "__main__":
    main()
