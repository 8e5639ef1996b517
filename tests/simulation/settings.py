"""Worlds in which the brokers' owner changes their settings while a migration rests or works: what the controllers share, and what preflight would refuse."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.kafka import CONTROLLERS
from tests.simulation.kafka4 import IMAGE as KAFKA4_IMAGE
from tests.simulation.kafka4 import MARK as KAFKA4
from tests.support.observations import RUNNING, setting, survey

from kraftbridge.models.conditions import Reason
from kraftbridge.models.decision import Action, RestartPod
from kraftbridge.models.phase import Phase
from kraftbridge.models.status import MigrationStatus, tuned_controllers
from kraftbridge.models.survey import BrokerSetting, Survey
from kraftbridge.phases.shared_settings import FOLLOWED

if TYPE_CHECKING:
    from tests.simulation.run import Run

CHANGED_CHANCE = 0.005
MENDED_CHANCE = 0.2
SHARED = "min.insync.replicas"
REFUSED = "create.topic.policy.class.name"
_STEPS = frozenset({Phase.TAKING_OVER, Phase.ROLLING_BROKERS, Phase.FINALIZING})


@cache
def _brokers(shared: str, refused: bool, nodes: tuple[int, ...]) -> dict[int, tuple[BrokerSetting, ...]]:
    found = [*RUNNING, setting("num.network.threads", "4")]
    if shared:
        found.append(setting(SHARED, shared))
    if refused:
        found.append(setting(REFUSED, "com.example.Policy"))
    return dict.fromkeys(nodes, tuple(found))


@cache
def _survey(shared: str, refused: bool, nodes: tuple[int, ...]) -> Survey:
    return survey(brokers=_brokers(shared, refused, nodes), log_dirs=dict.fromkeys(nodes, ()))


class Changed(StrEnum):
    """What the owner did."""

    SHARED = "a changed shared setting"
    REFUSED = "a setting that preflight refuses"


class Settings:
    """The settings that the brokers of one run have in common, drawn apart: the other draws of a seed stay what they were."""

    def __init__(self, seed: int, *, troubled: bool) -> None:
        self.random = Random(f"settings of {seed}")
        self.chance = CHANGED_CHANCE if troubled and self.random.random() < 0.5 else 0.0
        self.shared = ""
        """Value of `SHARED`, ``""`` while nobody has set it."""
        self.refused = False
        """Whether the brokers run with a class that the controllers do not have."""

    def brokers(self, nodes: tuple[int, ...]) -> dict[int, tuple[BrokerSetting, ...]]:
        """Return what each broker runs with."""
        return _brokers(self.shared, self.refused, nodes)

    def survey(self, nodes: tuple[int, ...]) -> Survey:
        """Return what the operator observes."""
        return _survey(self.shared, self.refused, nodes)

    def rendered(self, status: MigrationStatus) -> str:
        """Return the part of the controllers' configuration that comes from the brokers."""
        rendered = status.controllers.rendered if status.controllers is not None else None
        shared = rendered.broker_settings if rendered is not None else None
        value = (status.broker_settings if shared is None else shared).get(SHARED, "")
        return f"isr{value}"

    def rendering(self, run: Run) -> str:
        """Return what the controllers' objects are rendered from: the brokers' settings, and the heap of the spec."""
        rendered = run.status.controllers.rendered if run.status.controllers is not None else None
        controllers = tuned_controllers(run.spec, run.status) if rendered is None else rendered
        heap = controllers.heap_options or ""
        restored = rendered.restored.id if rendered is not None and rendered.restored is not None else ""
        number = run.cluster.certificates.number
        secrets = "".join(rendered.credentials.values()) if rendered is not None else str(number or "")
        clean = "clean-" if rendered is not None and rendered.clean else ""
        clean += f"{KAFKA4}-" if controllers.image == KAFKA4_IMAGE else ""
        return f"{clean}{f's{secrets}-' if secrets else ''}{self.rendered(run.status)}-{heap}{restored}"

    def happen(self, run: Run) -> None:
        """Let the owner change a setting, and take back what the migration refuses."""
        if self.refused and self.random.random() < MENDED_CHANCE:
            self.mend(run)
        if run.status.phase in FOLLOWED and self.random.random() < self.chance:
            self.change(run, Changed.REFUSED if self.random.random() < 0.3 else Changed.SHARED)

    def change(self, run: Run, kind: Changed) -> bool:
        """Let the owner change a setting; return whether it is another one now."""
        if kind is Changed.SHARED:
            self.shared = self.random.choice([v for v in ("", "1", "2") if v != self.shared])
        elif self.refused:
            return False
        else:
            self.refused = True
        self._note_edit(run)
        run.coverage.faults[kind] += 1
        run.coverage.worlds[kind, str(run.status.phase)] += 1
        return True

    def mend(self, run: Run) -> None:
        """Let the owner take back what the message names."""
        stalled = next((c for c in run.status.conditions if c.reason is Reason.FINDINGS and c.status == "True"), None)
        if self.refused and stalled is not None:
            self.refused = False
            self._note_edit(run)

    @staticmethod
    def _note_edit(run: Run) -> None:
        """Let the templates be others than before: what a broker runs with comes from them."""
        if run.cluster.channel is not None:
            run.cluster.channel.version += 1

    # ------------------------------------------------------------------------------------------- promises

    def trouble_entering(self, run: Run, phase: Phase) -> str:
        """Return which promise the entry of a phase breaks, ``""`` when none."""
        if phase not in _STEPS:
            return ""
        if self.refused:
            return f"{phase} entered although preflight refuses a present setting of the brokers"
        controllers = run.cluster.controllers
        pods = () if controllers is None else controllers.pods.values()
        if any(f"-isr{self.shared}-" not in pod.configuration for pod in pods):
            return f"{phase} entered by controllers that do not have the brokers' present settings"
        return ""

    def trouble_of(self, run: Run, action: Action) -> str:
        """Return which promise an action breaks, ``""`` when none."""
        match action:
            case RestartPod(_, _, node) if node not in CONTROLLERS and self.refused and self._begins_a_roll(run):
                return f"broker {node} is restarted although preflight refuses a present setting of the brokers"
            case _:
                return ""

    def _begins_a_roll(self, run: Run) -> bool:
        """Return whether a restart takes a broker that serves from a healthy cluster whose controller is still a broker."""
        kafka, operation = run.cluster.kafka, run.status.operation
        whole = all(kafka.brokers[i].up and i in kafka.in_sync and i not in kafka.unregistering for i in kafka.nodes)
        new = operation is not None and operation.started_at == run.decided_at
        return run.status.phase is Phase.TAKING_OVER and kafka.claim_epoch < 0 and whole and new
