"""Worlds in which the certificate of the controllers' listener is renewed, in time or not: what each process presents, and what must hold.

A process has what the Secret held when its pod started. Connections outlive a certificate; one that has ended makes no new one.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Final

from tests.simulation.kafka import CONTROLLERS, START
from tests.support.observations import issued_listener

from kraftbridge.models.decision import Action, RestartPod
from kraftbridge.models.issued import IssuedListener, IssuedSecret, PresentedCertificate
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.phase import Phase
from kraftbridge.phases import expired

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster, Pod
    from tests.simulation.run import Run

CHANCE: Final = 0.01
"""Of a step, with which the certificate is renewed."""
TOO_LATE: Final = 0.6
"""Part of the renewals that come after the end."""
MOST: Final = 2
"""Renewals of one run."""
BEGINS: Final = START - timedelta(days=1)
ENDS: Final = START + timedelta(days=5000)
NOT_ISSUED: Final = issued_listener(exists=False)
EXPIRED: Final = Unobserved("quorum", "certificate verify failed: certificate has expired")
_PATIENCE: Final = 20
"""Steps after which a person helps whom the operator has told why it does not."""


class Certificates:
    """What the Secret holds and each pod has loaded, drawn apart: the other draws of a seed stay what they were."""

    def __init__(self, seed: int = 0, *, troubled: bool = False) -> None:
        self.random = Random(f"certificates of {seed}")
        self.chance = CHANCE if troubled else 0.0
        self.number = 0
        """Of the certificate in the Secret."""
        self.ended: dict[int, float] = {}
        """When a certificate ended, by its number."""
        self.strikes: Counter[str] = Counter()
        self.restarted: Counter[str] = Counter()
        """Pods that were stopped while all restarted at once, by the certificate that they should get."""
        self.asked = 0

    def load(self, pod: Pod) -> None:
        """Note what a pod has loaded: a container that starts again in its pod has the same."""
        if pod.certificate is None:
            pod.certificate = self.number

    def has_ended(self, pod: Pod) -> bool:
        """Return whether a pod runs with a certificate that has ended."""
        return pod.certificate in self.ended

    def happen(self, run: Run) -> None:
        """Renew the certificate, perhaps after its end."""
        if self.random.random() >= self.chance or self.number >= MOST or not run.cluster.issued:
            return
        workload = run.cluster.controllers
        known = run.status.controllers
        if workload is None or known is None or known.format_allowed or run.status.phase.row.is_open:
            return
        late = self.random.random() < TOO_LATE
        if late:
            now = run.cluster.time.now
            self.ended |= dict.fromkeys(range(self.number + 1), now)
            run.cluster.kafka.end_certificates({n for n, p in workload.pods.items() if p.certificate is not None})
        self.number += 1
        self.strikes[f"{'ended' if late else 'renewed'} in {run.status.phase}"] += 1
        run.coverage.faults["certificate_ended" if late else "certificate_renewed"] += 1

    def lend_a_hand(self, run: Run) -> None:
        """Replace the pods, as the message says, where the operator may not."""
        workload = run.cluster.controllers
        if workload is None or "not now:" not in run.status.message:
            self.asked = 0
            return
        self.asked += 1
        if self.asked > _PATIENCE:
            self.asked = 0
            for node in CONTROLLERS:
                run.cluster.delete_pod(workload, node)

    def trouble_of(self, run: Run, action: Action) -> str:
        """Return which promise an action breaks."""
        workload = run.cluster.controllers
        if not isinstance(action, RestartPod) or action.node_id not in CONTROLLERS or workload is None:
            return ""
        pod = workload.pods.get(action.node_id)
        if pod is None or pod.uid != action.uid or pod.deleting or not self.has_ended(pod):
            return ""
        current = run.status.quorum_restart
        if current is None or not expired.is_under_way(run.status):
            return ""
        if run.status.phase is Phase.FINALIZING:
            return "all controllers restart in Finalizing"
        if run.status.phase is Phase.TAKING_OVER and run.cluster.kafka.claim_epoch >= 0:
            return "all controllers restart between the claim and dual-write"
        if run.spec.paused and current.restarted_at is None:
            return "all controllers restart in a pause"
        self.restarted[current.certificate] += 1
        return ""

    # ----------------------------------------------------------------------------------------- observation

    def secrets(self, cluster: Cluster) -> IssuedListener:
        """Return the Secrets as they are now."""
        if not cluster.issued:
            return NOT_ISSUED
        return _issued(self._called(self.number))

    def presented(self, cluster: Cluster) -> dict[int, PresentedCertificate | Unobserved]:
        """Return what each controller presents."""
        seen: dict[int, PresentedCertificate | Unobserved] = {}
        workload = cluster.controllers
        for node, pod in () if workload is None else workload.pods.items():
            number = pod.certificate
            if number is None or pod.deleting or not cluster.kafka.controllers[node].up:
                seen[node] = Unobserved(f"certificate of controller {node}", "connection refused")
                continue
            at = self.ended.get(number)
            seen[node] = PresentedCertificate(
                cluster._pod_state(pod).process,
                self._called(number),
                BEGINS,
                ENDS if at is None else cluster.moment(at),
            )
        return seen

    def _called(self, number: int) -> str:
        """Name a certificate; that it will end so soon nobody knew, so it is another one then."""
        return f"{number:015}{'e' if number in self.ended else '0'}"


@cache
def _issued(fingerprint: str) -> IssuedListener:
    """Return the Secrets with this certificate of the controllers."""
    secret = IssuedSecret("demo-controllers", exists=True, begins_at=BEGINS, expires_at=ENDS, fingerprint=fingerprint)
    issued = issued_listener(controllers=secret)
    return IssuedListener(issued.authority, issued.controllers, issued.brokers, authority_key="the authority's")
