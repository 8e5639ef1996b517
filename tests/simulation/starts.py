"""Brokers that recover their logs for minutes after a start. Their pods are Ready at once, as in charts without a readiness probe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from kraftbridge.models.decision import Action, RestartPod

SLOW_CHANCE = 0.25
RECOVERY_SECONDS = (190.0, 700.0)
"""Longer than a broker may take to register where its log says nothing."""
LINE_EVERY_SECONDS = 20.0
SEEN_WITHIN_SECONDS = 60.0
"""A restart that was decided before the recovery could be seen breaks no promise."""


@dataclass
class SlowStarts:
    """Which brokers recover, and what their logs say."""

    random: Random | None = None
    """None: every start is quick."""
    since: dict[int, float] = field(default_factory=dict)
    """When the recovery of a broker began."""
    starts: int = 0

    def begin(
        self, node: int, now: float, later: Callable[[float, Callable[[], None]], None], up: Callable[[], None]
    ) -> None:
        """Let a broker come up, at once or when its logs are recovered."""
        self.end(node)
        if self.random is None or self.random.random() >= SLOW_CHANCE:
            up()
            return
        self.starts += 1
        self.since[node] = now
        began = now

        def recovered() -> None:
            if self.since.get(node) == began:
                del self.since[node]
                up()

        later(self.random.uniform(*RECOVERY_SECONDS), recovered)

    def end(self, node: int) -> None:
        """Note that the process is gone."""
        self.since.pop(node, None)

    def line(self, node: int, now: float) -> str:
        """Return the newest line of a broker's log about the loading of its partitions."""
        began = self.since.get(node)
        if began is None:
            return ""
        return f"[LogLoader partition=orders-{int((now - began) // LINE_EVERY_SECONDS)}, dir=/data] Recovering unflushed segment 0"

    def trouble_of(self, action: Action, now: float) -> str:
        """Return which promise an action breaks."""
        if not isinstance(action, RestartPod):
            return ""
        began = self.since.get(action.node_id)
        if began is None or now - began < SEEN_WITHIN_SECONDS:
            return ""
        return f"broker {action.node_id} is restarted while it recovers its logs"
