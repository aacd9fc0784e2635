"""`make peers`, or in its environment

    python -m benchmarks.peers  # all rows, into docs/peers.json and docs/peers.md
    python -m benchmarks.peers nnsight mup --rounds 3
        # some, and what they are compared with, to the terminal only

Exits with 1 where a value disagrees.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.peers.kit import ROWS
from benchmarks.peers.model import SIZES
from benchmarks.peers.report import machine, page, table
from benchmarks.peers.rounds import ROUNDS, measured

DOCS = Path(__file__).parents[2] / "docs"


def main() -> int:
    """Measures, prints, and writes what was measured whole."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers")
    parser.add_argument(
        "rows", nargs="*", metavar="row", help=", ".join(f'"{row.name}"' for row in ROWS)
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    asked = parser.parse_args()
    unknown = set(asked.rows) - {row.name for row in ROWS}
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    wanted = {*asked.rows, *(row.over for row in ROWS if row.name in asked.rows), "bare"}
    rows = [row for row in ROWS if not asked.rows or row.name in wanted]
    records = measured(rows, list(SIZES), asked.rounds)
    print(table(records, list(SIZES)))
    if not asked.rows:
        result = {
            "date": datetime.now(UTC).date().isoformat(),
            "machine": machine(),
            "rounds": asked.rounds,
            "sizes": list(SIZES),
            "rows": records,
        }
        (DOCS / "peers.json").write_text(
            json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        (DOCS / "peers.md").write_text(page(result), encoding="utf-8")
    return int(
        any(
            found.get("agrees") is False for record in records for found in record["sizes"].values()
        )
    )


if __name__ == "__main__":
    sys.exit(main())
