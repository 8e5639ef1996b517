"""Reads the last log lines of nodes that may explain why a migration does not progress."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from kraftbridge.builders.controllers import KAFKA_CONTAINER
from kraftbridge.exceptions import ObservationError
from kraftbridge.models.observation import Clue, ControllersWorkload, PodState, StatefulSetState, Unobserved, clues_in
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import MigrationStatus
from kraftbridge.phases.draft import Identity
from kraftbridge.storage.ports import KubernetesPort

EVERY_SECONDS: Final = 15.0
LINES: Final = 400
SINCE_SECONDS: Final = 180
"""The migration driver repeats its waiting message at least once a minute (maximum backoff of ``KRaftMigrationDriver``)."""
MOST_PODS: Final = 8

Clues = Mapping[str, tuple[Clue, ...]]


class LogReader:
    """Reads logs of controllers, and of brokers that are down or restarting. Results are cached for some seconds."""

    def __init__(self, kubernetes: KubernetesPort) -> None:
        self._kubernetes = kubernetes
        self._known: dict[str, tuple[float, Clues]] = {}

    def clues(
        self,
        identity: Identity,
        spec: MigrationSpec,
        status: MigrationStatus,
        sets: tuple[StatefulSetState | Unobserved, ...],
        controllers: ControllersWorkload | Unobserved,
    ) -> Clues:
        """Return the clues in the nodes' logs, by node.

        Raises
        ------
        ObservationError
            No log could be read.
        """
        known = self._known.get(identity.uid)
        if known is not None and time.monotonic() - known[0] < EVERY_SECONDS:
            return known[1]
        found: dict[str, tuple[Clue, ...]] = {}
        error: ObservationError | None = None
        read = False
        for node, pod, container in _nodes(spec, status, sets, controllers)[:MOST_PODS]:
            try:
                text = self._log(identity.namespace, pod, container)
            except ObservationError as e:
                error = e
                continue
            read = True
            if clues := clues_in(text):
                found[node] = clues
        if error is not None and not read:
            raise error
        self._known[identity.uid] = (time.monotonic(), found)
        return found

    def _log(self, namespace: str, pod: PodState, container: str) -> str:
        lately = self._kubernetes.pod_logs(namespace, pod.name, container, LINES, since_seconds=SINCE_SECONDS)
        if pod.ready or "CrashLoop" not in pod.trouble:
            return lately or ""
        return self._kubernetes.pod_logs(namespace, pod.name, container, LINES, previous=True) or lately or ""


def _nodes(
    spec: MigrationSpec,
    status: MigrationStatus,
    sets: tuple[StatefulSetState | Unobserved, ...],
    controllers: ControllersWorkload | Unobserved,
) -> list[tuple[str, PodState, str]]:
    """Return the nodes whose logs are useful, with the container; nodes that are down come first."""
    nodes = []
    if isinstance(controllers, ControllersWorkload) and controllers.stateful_set is not None:
        nodes += [(f"controller {p.ordinal}", p, KAFKA_CONTAINER) for p in controllers.stateful_set.pods]
    operating = status.operation.pod if status.operation is not None else ""
    for item in sets:
        if isinstance(item, StatefulSetState):
            nodes += [
                (f"broker {status.broker_ids.get(p.name, '?')} (pod {p.name})", p, spec.brokers.container)
                for p in item.pods
                if not p.ready or p.name == operating
            ]
    return sorted(nodes, key=lambda n: n[1].ready)
