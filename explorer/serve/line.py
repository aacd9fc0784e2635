"""`Line`: visitors who wait until a page is free, first come, first served."""

from __future__ import annotations

import secrets
import time

MOST = 200
"""Visitors in line, at most."""
NEW, PRESENT, KEPT = 14.0, 25.0, 120.0
"""Seconds since a visitor asked last, beyond which others go ahead, and beyond which the place is lost.

A page asks again every 15 seconds, in a tab that nobody sees once a minute. Others go ahead sooner of somebody who has
not come back yet: a browser that keeps no token is new each time, and must not wait for itself.
"""
ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]


class Line:
    """Places by token, which a visitor's browser keeps. Only tokens that were made here are remembered."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[float, float]] = {}
        """When each visitor asked last, and for how long that counts, in the order in which they came."""

    def ahead(self, token: str) -> int:
        """Visitors who come before one, or before somebody new."""
        now, count = time.monotonic(), 0
        for other, (asked, counts) in self._asked.items():
            if other == token:
                break
            count += now - asked < counts
        return count

    def wait(self, token: str) -> str:
        """Has a visitor wait, and returns their token: a new one for somebody new, none where the line is full."""
        now, counts = time.monotonic(), PRESENT
        self._asked = {other: last for other, last in self._asked.items() if now - last[0] < KEPT}
        if token not in self._asked:
            if len(self._asked) >= MOST:
                return ""
            token, counts = secrets.token_urlsafe(16), NEW
        self._asked[token] = now, counts
        return token

    def leave(self, token: str) -> None:
        """Takes a visitor out who has got a page."""
        self._asked.pop(token, None)


def place(ahead: int) -> str:
    """A sentence for a visitor before whom so many others come."""
    return f"You are {ORDINALS[ahead]} in line." if ahead < len(ORDINALS) else f"You are number {ahead + 1} in line."
