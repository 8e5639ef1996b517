"""The brokers' image of a simulated migration: its tag may move after preflight, and the user accepts that some time later."""

from __future__ import annotations

from random import Random
from typing import Final

FORMER_IMAGE: Final = "sha256:former"
OTHER_IMAGE: Final = "sha256:other"
_MOVES: Final = 0.125
"""Share of the migrations whose tag may move."""
_MOVES_NOW: Final = 0.02


class Images:
    """What the tag names, what the brokers ran before the first restart, and what the user says to that."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.tag = FORMER_IMAGE
        """Image that the tag names now: a new pod of a broker runs it."""
        self.before: dict[int, str] = {}
        """What each broker ran right before the first restart."""
        self.may_move = random.random() < _MOVES
        self._accepted_at = 0.0

    @property
    def moved(self) -> bool:
        """Whether the tag names another image than at first."""
        return self.tag == OTHER_IMAGE

    def move(self, now: float) -> bool:
        """Let the tag name another image, perhaps; return whether it did."""
        if self.moved or not self.may_move or self.random.random() >= _MOVES_NOW:
            return False
        self.tag, self._accepted_at = OTHER_IMAGE, now + self.random.uniform(30.0, 600.0)
        return True

    def accepted(self, now: float) -> bool:
        """Return whether the user accepts the other image by now."""
        return self.moved and now >= self._accepted_at
