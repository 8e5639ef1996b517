"""Observes pods, partitions and the controller while a migration runs."""

import json
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from e2e.harness.foreign import ForeignCluster
from e2e.harness.kube import CommandFailedError, eventually
from e2e.harness.promises import PodSeen, PodsSeen
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

POLL_S = 0.5
REQUEST_TIMEOUT_S = 3


class PodWatch(threading.Thread):
    """Observes the pods of brokers and controllers twice a second and records every change."""

    def __init__(self, cluster: ForeignCluster) -> None:
        super().__init__(daemon=True)
        kube = cluster.kube
        loader = config.new_client_from_config(config_file=kube.environment.get("KUBECONFIG"), context=kube.context)
        self._core = client.CoreV1Api(loader)
        self._cluster = cluster
        self._ended = threading.Event()
        self.samples: list[PodsSeen] = []

    def run(self) -> None:
        while not self._ended.wait(POLL_S):
            try:
                answer = self._core.list_namespaced_pod(
                    self._cluster.namespace, _preload_content=False, _request_timeout=REQUEST_TIMEOUT_S
                )
                pods = _seen(json.loads(answer.data)["items"], self._cluster.broker_pods)
            except (HTTPError, ApiException, ValueError, KeyError):
                continue  # the API server may be the one that was struck
            if not self.samples or self.samples[-1].pods != pods:
                self.samples.append(PodsSeen(time.time(), pods))

    def stop(self) -> None:
        self._ended.set()


def _seen(pods: Iterable[Mapping[str, Any]], brokers: Collection[str]) -> dict[str, PodSeen]:
    return {
        pod["metadata"]["name"]: PodSeen(
            pod["metadata"]["uid"],
            any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions") or []),
            "deletionTimestamp" in pod["metadata"],
        )
        for pod in pods
        if pod["metadata"]["name"] in brokers
        or (pod["metadata"].get("labels") or {}).get("kraftbridge.dev/role") == "controller"
    }


@dataclass(frozen=True)
class Vitals:
    """A pod that watches partitions and the controller as a client sees them."""

    cluster: ForeignCluster

    @property
    def pod(self) -> str:
        return f"{self.cluster.prefix}vitals"

    def start(self) -> None:
        """Start it and wait for its first line."""
        self.cluster.kube.apply(self.cluster.manifest("vitals.yaml"), self.cluster.namespace)
        eventually(self.lines, "the cluster's vitals are watched", 60)

    def lines(self) -> list[dict[str, Any]]:
        """Return what it has seen so far, two lines per second."""
        try:
            log = self.cluster.kube.kubectl("logs", "-n", self.cluster.namespace, self.pod)
        except CommandFailedError:
            return []
        return [json.loads(line) for line in log.splitlines() if line.startswith('{"at"')]


def longest_without_controller_s(lines: Iterable[Mapping[str, Any]], window: tuple[float, float]) -> float:
    """Return the longest time in which no probe was answered by a controller: from the last answered one's sending to the next one's answer."""
    probes = sorted((sent, took) for line in lines for sent, took in line["probes"] if window[0] <= sent <= window[1])
    longest, last = 0.0, None
    for sent, took in probes:
        if took is None:
            continue
        if last is not None:
            longest = max(longest, sent + took - last)
        last = sent
    return round(longest, 2)


def offline_at_end(lines: Sequence[Mapping[str, Any]]) -> int:
    """Return how many partitions have no leader as far as the last line says."""
    known = [line for line in lines if "trouble" not in line]
    return int(known[-1]["offline"]) if known else -1
