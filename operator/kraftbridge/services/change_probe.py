"""A probe in the background: the loop goes on looking meanwhile, and its result is part of a later observation."""

from __future__ import annotations

import threading

from kraftbridge.models.measurement import ProbeResult
from kraftbridge.storage.ports import BrokerPort


class BackgroundProbe:
    """One probe, begun when this is made."""

    def __init__(self, brokers: BrokerPort, topic: str) -> None:
        self.result: ProbeResult | None = None
        """None until it ended."""
        self._brokers = brokers
        self._topic = topic
        threading.Thread(target=self._run, name="probe", daemon=True).start()

    def _run(self) -> None:
        try:
            self.result = self._brokers.measure_changes(self._topic)
        except Exception as e:  # noqa: BLE001 - a measurement must not be waited for in vain, whatever happened to it
            self.result = ProbeResult(self._topic, note=f"{type(e).__name__}: {e}")
