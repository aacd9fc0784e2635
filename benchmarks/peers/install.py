"""`python -m benchmarks.peers.install`: the peers, into the environment that runs this; notes which
failed, and why."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FAILURES = Path(sys.prefix) / "peers-not-installed.json"
"""A requirement's name to pip's reason."""


def wanted(text: str) -> dict[str, list[str]]:
    """A requirement's name to the words that pip is told, a line each."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    words = [[line] if " @ " in line else line.split() for line in lines]
    return {line[-1].partition(" @ ")[0].partition("==")[0]: line for line in words}


def install(words: list[str]) -> str:
    """Why it was not installed; empty if it was."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "-c",
        "constraints.txt",
    ]
    done = subprocess.run([*pip, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    said = re.search(r"(?:ERROR|fatal): (.+)", done.stderr)  # pip's own words, or git's
    return said[1].strip() if said else f"pip ended with {done.returncode}"


def failure(name: str) -> str:
    """Why a distribution is not here, as pip said; empty if it did not say."""
    found = json.loads(FAILURES.read_text(encoding="utf-8")) if FAILURES.exists() else {}
    return str(found.get(name, ""))


def main() -> None:
    """Installs all, and prints those that failed."""
    found = {
        name: install(words)
        for name, words in wanted(
            Path(__file__).with_name("requirements.txt").read_text(encoding="utf-8")
        ).items()
    }
    failed = {name: reason for name, reason in found.items() if reason}
    FAILURES.write_text(json.dumps(failed, indent=1) + "\n", encoding="utf-8")
    for name, reason in failed.items():
        print(f"{name} does not install: {reason}")


if __name__ == "__main__":
    main()
