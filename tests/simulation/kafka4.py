"""The way on to Kafka 4 in the simulated cluster: what each node runs, what none of them survives, and a user who wants there, back, or the features."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Final

from tests.simulation.kafka import CONTROLLERS

from kraftbridge.copies.dry_start import copies_for_kafka4
from kraftbridge.models.catalogue import Code
from kraftbridge.models.dry_start import ContainerImage, CopyOutcome, DryStartReport, GivenSetting, KafkaStart
from kraftbridge.models.metadata_version import FEATURE, Upgrade
from kraftbridge.models.observation import FeatureAnswer, NodeFeatures, StatefulSetState, Unobserved
from kraftbridge.models.phase import BrokerMode, Phase, Target
from kraftbridge.models.spec import AcceptedFinding, HandOver, Kafka4Spec
from kraftbridge.models.status import MigrationStatus

if TYPE_CHECKING:
    from tests.simulation.run import Run

IMAGE: Final = "registry/kafka:4.1.2"
DIGEST: Final = "sha256:kafka4"
MARK: Final = "kafka4"
"""What the rendering of controllers with Kafka 4 carries."""
_WANTED: Final = 0.5
"""Part of the completed migrations whose users go on to Kafka 4."""
_BACK: Final = 0.4
"""Part of those that go back some time later."""
_RAISED: Final = 0.5
"""Part of those that reach Kafka 4 for good and raise the features."""
_TURNS: Final = 0.02
"""How likely the user turns back, or on again, in a step on the way."""
_FORMER: Final = {FEATURE: (1, 21)}
_SUPPORTED: Final = {FEATURE: (7, 27), "group.version": (0, 1), "kraft.version": (0, 1), "transaction.version": (0, 2)}
_ACCEPTED: Final = (Code.KAFKA4_CLIENTS_UNKNOWN, Code.KAFKA4_REFUSES_VALUE)


class ToKafka4:
    """What the nodes of one run run of Kafka 4, drawn apart: the other draws of a seed stay what they were."""

    def __init__(self, seed: int, *, troubled: bool) -> None:
        self.random = Random(f"kafka 4 of {seed}")
        self.troubled = troubled
        self.wanted = self.random.random() < _WANTED
        self.goes_back = self.random.random() < _BACK
        self.raises = self.random.random() < _RAISED
        self.going = False
        """Whether the user has asked for it."""
        self.times = 0
        self.nodes: set[int] = set()
        """Nodes whose process runs Kafka 4, or ran it last."""
        self.up: set[int] = set()
        self.copied = False
        """Whether copies of the brokers' pods have shown what they make of Kafka 4."""
        self.levels: dict[str, int] = {FEATURE: 21}
        self.broken = ""
        """Promise that a start or a request has broken."""
        self.word = False
        """Whether the user has asked for the features."""

    # ------------------------------------------------------------------------------------------- the cluster

    def start(self, node: int, configuration: str) -> None:
        """Let a process of a node start."""
        is_new = configuration.startswith(f"{BrokerMode.KAFKA4}-") or f"-{MARK}" in configuration
        self.up.add(node)
        raised = {name: level for name, level in self.levels.items() if name != FEATURE or level > 21}
        if not is_new and any(raised.values()):
            self.broken = f"node {node} starts with 3.9 after a feature was raised"
        if is_new and node not in CONTROLLERS:
            former = sorted(set(CONTROLLERS) - self.nodes)
            if former:
                self.broken = f"broker {node} starts with Kafka 4 while controller {former[0]} runs 3.9"
            if not self.copied:
                self.broken = f"broker {node} starts with Kafka 4, and no copy has"
        if not is_new and node in CONTROLLERS and (brokers := sorted(self.nodes - set(CONTROLLERS))):
            self.broken = f"controller {node} starts with 3.9 while broker {brokers[0]} runs Kafka 4"
        if is_new:
            self.nodes.add(node)
        else:
            self.nodes.discard(node)

    def stop(self, node: int) -> None:
        """Let a process be gone."""
        self.up.discard(node)

    def forget(self) -> None:
        """Let the controllers be others than before: the next attempt's."""
        self.nodes -= set(CONTROLLERS)

    def raise_feature(self, name: str, level: int) -> str:
        """Take a request; return what went wrong."""
        if not self.word:
            self.broken = f"{name} is raised although nobody has asked for it"
        if not set(CONTROLLERS) <= self.nodes:
            self.broken = f"{name} is raised while a controller runs 3.9"
        if name == "kraft.version":
            self.broken = "the quorum is made dynamic"
        if name != FEATURE and self.levels[FEATURE] <= 21:
            self.broken = f"{name} is raised before {FEATURE}"
        self.levels[name] = level
        return ""

    # ------------------------------------------------------------------------------------------- observation

    def features(self, node: int, *, loaded: bool, migrates: bool) -> NodeFeatures:
        """Return what a node says of its features."""
        supported = _SUPPORTED if node in self.nodes else _FORMER
        return NodeFeatures(dict(self.levels) if loaded else {}, supported, migrates, finalized_epoch=10**9)

    def answer(self, status: MigrationStatus) -> FeatureAnswer | Unobserved:
        """Return what the active controller says to the level that it is asked to validate."""
        leg = status.kafka4_leg
        if leg is None or leg.asks is None:
            return Unobserved("quorum", "nothing is asked")
        return FeatureAnswer(leg.asks.to_level, Upgrade.UPGRADE, accepted=True, feature=leg.asks.name)

    def found(self, sets: list[StatefulSetState], ids: Mapping[str, int], fingerprint: str, tag: str) -> DryStartReport:
        """Return what copies show before Kafka 4: every pod as it runs, and with the image."""
        copies = []
        for item in sets:
            for key in copies_for_kafka4(item.name, [pod.ordinal for pod in item.pods]):
                is_new = key.mode is BrokerMode.KAFKA4
                start = KafkaStart(
                    valid=True, settings={"log.dirs": GivenSetting("/data")}, kafka="4.1.2" if is_new else "3.9.2"
                )
                got = (IMAGE, DIGEST) if is_new else ("own", tag)
                images = (ContainerImage("kafka", "own", tag, *got),)
                copies.append(CopyOutcome(key, ids.get(key.pod, key.ordinal), start, images=images))
        return DryStartReport(fingerprint, tuple(copies))

    # ------------------------------------------------------------------------------------------- the user

    def asks(self, run: Run) -> bool:
        """Let the user of a completed migration ask for Kafka 4, and of one at Kafka 4 for what comes then; return whether more follows."""
        phase = run.status.phase
        if phase is Phase.COMPLETED:
            if not self.wanted or self.times >= 2 or run.deleted or run.spec.hand_over is not HandOver.GUARD:
                return False
            if self.times and self.random.random() < 0.5:
                return False
            self.times += 1
            self.going = True
            accepted = (*run.spec.preflight.accepted, *(AcceptedFinding(code=str(code)) for code in _ACCEPTED))
            preflight = run.spec.preflight.model_copy(update={"accepted": accepted})
            run._edit(target=Target.KAFKA4, kafka4=Kafka4Spec(image=IMAGE), preflight=preflight)
            run.coverage.faults["kafka4_wanted"] += 1
            return True
        if phase is not Phase.KAFKA4 or run.deleted:
            return False
        if self.goes_back and not self.word:
            self.goes_back = self.random.random() < _BACK
            self.going = False
            run._edit(target=Target.KRAFT)
            run.coverage.faults["kafka4_taken_back"] += 1
            return True
        if self.raises and not self.word:
            self.word = True
            asked = run.spec.kafka4 or Kafka4Spec(image=IMAGE)
            run._edit(kafka4=asked.model_copy(update={"metadata_version": "4.1-IV1"}))
            run.coverage.faults["features_wanted"] += 1
            return True
        return False

    def happen(self, run: Run) -> None:
        """Let the user turn back on the way."""
        leg = run.status.kafka4_leg
        is_open = leg is not None and leg.final_at is None
        on_the_way = run.status.phase in (Phase.KAFKA4_CONTROLLERS, Phase.KAFKA4_BROKERS)
        if on_the_way and is_open and self.random.random() < _TURNS:
            self.going = not self.going
            run._edit(target=Target.KAFKA4 if self.going else Target.KRAFT)
            run.coverage.faults["kafka4_turned"] += 1

    def target(self, run: Run) -> Target | None:
        """Return what the user wants once every fault has ended, None where it is no matter of Kafka 4."""
        status = run.status
        if status.phase is Phase.LEAVING_KAFKA4:
            return Target.KRAFT
        if not status.phase.row.on_kafka4 and not (status.phase is Phase.COMPLETED and self.going):
            return None
        leg = status.kafka4_leg
        is_final = leg is not None and leg.final_at is not None
        return Target.KAFKA4 if self.going or is_final else Target.KRAFT

    # ------------------------------------------------------------------------------------------- promises

    def trouble_at_rest(self, run: Run) -> str:
        """Return what is not as it must be at rest, ``""`` when all is."""
        pods = [pod for workload in run.cluster.broker_sets for pod in workload.pods.values()]
        brokers = {pod.node for pod in pods}
        if run.status.phase is Phase.COMPLETED and self.nodes:
            return f"nodes {sorted(self.nodes)} run Kafka 4"
        if run.status.phase is not Phase.KAFKA4:
            return ""
        if missing := sorted((brokers | set(CONTROLLERS)) - self.nodes):
            return f"nodes {missing} run 3.9"
        if self.word and self.levels != {FEATURE: 27, "group.version": 1, "transaction.version": 2}:
            return f"the features are {self.levels}"
        if not self.word and self.levels != {FEATURE: 21}:
            return f"features were raised unasked: {self.levels}"
        return ""
