"""Worlds in which an object comes back with another UID, as a restored backup or a StatefulSet that somebody created anew."""

from __future__ import annotations

from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, Final

from kraftbridge.models.conditions import Reason
from kraftbridge.models.decision import Action, ApplyControllers, ConfigureBrokers, RestartPod, RestoreStatefulSet

if TYPE_CHECKING:
    from tests.simulation.run import Run

ACCEPTED_CHANCE: Final = 0.1
_WRITES: Final = RestartPod | ConfigureBrokers | RestoreStatefulSet | ApplyControllers


class Exchanged(StrEnum):
    """What has another UID."""

    BROKERS = "a StatefulSet of brokers with another UID"
    CLAIM = "a claim of a broker with another UID"


class Uids:
    """What came back in one run, drawn apart: the other draws of a seed stay what they were."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"UIDs of {seed}")
        self.count = 0
        self.exchanged = ""
        """What has another UID, and the user has not said that it is the same; ``""``: nothing has."""
        self.claim = "claim-0"

    def exchange(self, run: Run, kind: Exchanged) -> bool:
        """Let an object come back with another UID; return whether it did."""
        if self.exchanged or run.status.objects is None:
            return False
        self.count += 1
        if kind is Exchanged.BROKERS:
            run.cluster.broker_sets[0].uid = f"restored-{self.count}"
        else:
            self.claim = f"restored-claim-{self.count}"
        self.exchanged = kind
        run.coverage.faults[kind] += 1
        run.coverage.worlds[kind, str(run.status.phase)] += 1
        return True

    def happen(self, run: Run) -> None:
        """Let the user say, some time after the operator has asked, that it is the same."""
        if self.exchanged and self.random.random() < ACCEPTED_CHANCE:
            self.accept(run)

    def accept(self, run: Run) -> None:
        """Let the user name the change that the message asks for."""
        asked = next(
            (c for c in run.status.conditions if c.reason is Reason.IDENTITY_CHANGED and c.status == "True"), None
        )
        _, has_id, rest = ("", "", "") if asked is None else asked.message.partition("spec.acceptedObjects to ")
        if has_id:
            run._edit(accepted_objects=rest.partition(":")[0])
            self.exchanged = ""

    def note_look(self, run: Run) -> None:
        """Forget what nobody compares: in an open phase, and once the brokers are their owner's again."""
        status = run.status
        if status.phase.row.is_open or (not status.phase.reversible and status.given_back_at is not None):
            self.exchanged = ""

    def trouble_of(self, run: Run, action: Action) -> str:
        """Return which promise an action breaks, ``""`` when none."""
        if isinstance(action, _WRITES) and self.exchanged:
            return f"{type(action).__name__} although {self.exchanged} is there, and nobody says that it is the same"
        return ""
