"""Clusters that run an older release than 3.9 and are brought to it: which image and protocol each broker runs, and what none of them survives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Final

from tests.simulation.kafka import BROKERS, Kafka
from tests.simulation.topic_ids import Ids
from tests.support.observations import setting

from kraftbridge.models.dry_start import ContainerImage, CopyOutcome, DryStartReport, GivenSetting
from kraftbridge.models.phase import BrokerMode, Phase, Target
from kraftbridge.models.protocol import SETTING, Protocol, is_bridge, lowest
from kraftbridge.models.spec import MigrationSpec, UpgradeSpec
from kraftbridge.models.status import MigrationStatus
from kraftbridge.models.survey import SettingSource, Survey

if TYPE_CHECKING:
    from tests.simulation.run import Run

REMAINDER: Final = 4
"""Of the seeds modulo 6, whose clusters run an older release."""
IMAGE: Final = "registry/kafka:3.9.2"
FORMER: Final = "registry/kafka:former"
NEW_DIGEST: Final = "-new"
"""End of the digest of the new image; the beginning is that of the tag."""
_RELEASES: Final = ("2.8-IV1", "3.0-IV1", "3.1-IV0", "3.4-IV0", "3.6-IV2", "3.8-IV0")
_WITHOUT_IDS: Final = ("2.4-IV1", "2.5-IV0", "2.7-IV2", "2.8-IV0")
"""Protocols with which topics have no ids, or brokers do not keep them (KIP-516)."""
_OLD: Final = 0.5
"""Part of the clusters that run one of these."""
_MOVES: Final = 0.02
"""How likely the controller on ZooKeeper moves in a step of the leg by itself."""
_MIXED: Final = 0.3
"""Part of the clusters in which an upgrade was left half-way: one broker has a newer release, or a newer protocol."""
_ASKED: Final = 0.5
"""Part of the users who give the word only once they are asked."""
_HANGS: Final = 0.3
"""How likely a leader of an older release is refused by a newer controller while a broker restarts."""
_SAYS: Final = 0.05
_TARGETS: Final = 0.25
"""Part of the migrations that first go as far as the bridge release."""
_ON_THE_WAY: Final = (Phase.UPGRADING_BROKERS, Phase.PROVISIONING_QUORUM, Phase.TAKING_OVER)


@dataclass(frozen=True)
class Software:
    """What a broker's process runs."""

    image: str
    protocol: str

    @property
    def is_new(self) -> bool:
        return self.image == IMAGE


class Leg:
    """The software of the brokers of one run, drawn apart: the other draws of a seed stay what they were."""

    def __init__(self, seed: int, nodes: tuple[int, ...] = BROKERS) -> None:
        self.random = Random(f"leg of {seed}")
        self.on = seed % 6 == REMAINDER
        known = (*_WITHOUT_IDS, *_RELEASES)
        protocol = self.random.choice(_WITHOUT_IDS if self.random.random() < _OLD else _RELEASES)
        self.own = dict.fromkeys(nodes, Software(FORMER, protocol))
        """What each broker runs of its owner's template."""
        if self.random.random() < _MIXED:
            newer = [p for p in known if Protocol.of(p) > Protocol.of(protocol)]  # type: ignore[operator]
            self.own[self.random.choice(nodes)] = Software(FORMER, self.random.choice([protocol, *newer]))
        self.pin = ""
        """Protocol that the templates in mode Upgraded render."""
        self.kept: set[str] = set()
        """StatefulSets whose own template has the new image and 3.9's protocol, since a rollback left them there."""
        self.born: dict[str, Software] = {}
        """By UID of a pod."""
        self.running: dict[int, Software] = {}
        """By broker, what its process runs, or ran last."""
        self.up: set[int] = set()
        self.lifted: set[int] = set()
        """Brokers that have run 3.9's protocol."""
        self.broken = ""
        """Promise that a start has broken."""
        self.word = False
        """Whether the user has given the former image up."""
        self.ids: Ids | None = None
        """Ids of the topics."""
        self.kafka: Kafka | None = None
        self.hangs = Random(f"hanging leaders of {seed}")
        self.hanging: tuple[int, int] | None = None
        """A leader of an older release that does not ask for a broker's return to an ISR, and that broker."""

    def begin(self, kafka: Kafka) -> None:
        """Let the brokers run that were there before."""
        self.kafka = kafka
        if self.on:
            self.ids = Ids(kafka, self.random, lambda node: self.running[node].protocol)
            self.ids.begin()

    def spec(self, spec: MigrationSpec) -> MigrationSpec:
        """Return what the user asks for."""
        if not self.on:
            return spec
        self.word = self.random.random() >= _ASKED
        target = Target.BRIDGE_RELEASE if self.random.random() < _TARGETS else spec.target
        return spec.model_copy(
            update={
                "target": target,
                "brokers": spec.brokers.model_copy(update={"upgrade": UpgradeSpec(image=IMAGE)}),
                "rollback": spec.rollback.model_copy(update={"give_up_former_image": self.word}),
            }
        )

    # ------------------------------------------------------------------------------------------- the cluster

    def give_birth(self, uid: str, node: int, name: str, configuration: str, tag: str) -> str:
        """Note what a new pod will run; return the digest of its image."""
        if not self.on:
            return tag
        mode = BrokerMode.of(configuration)
        if mode is BrokerMode.UPGRADED:
            software = Software(IMAGE, self.pin)
        elif mode is BrokerMode.ZOOKEEPER and name not in self.kept:
            software = self.own[node]
        else:
            software = Software(IMAGE, "3.9")
        self.born[uid] = software
        return f"{tag}{NEW_DIGEST}" if software.is_new else tag

    def start(self, uid: str, node: int, mode: BrokerMode) -> None:
        """Let a broker's process start."""
        if not self.on:
            return
        software = self.born[uid]
        others = [self.running[other] for other in self.up - {node}]
        newest = is_bridge(software.protocol) and software.is_new
        if mode.registers and self.ids is not None and node not in self.ids.keeps:
            self.broken = f"broker {node} enters mode {mode} with a log without id"
        if not software.is_new and node in self.lifted:
            self.broken = f"broker {node} starts with the former image after it has run 3.9's protocol"
        elif not newest and node in self.lifted:
            self.broken = f"broker {node} starts with protocol {software.protocol} after it has run 3.9's"
        elif newest and any(not other.is_new for other in others):
            self.broken = f"broker {node} speaks 3.9's protocol while another broker runs the former image"
        elif newest and not self.word and node not in self.lifted:
            self.broken = f"broker {node} speaks 3.9's protocol although nobody has given the former image up"
        elif software.is_new and not newest and software.protocol != lowest(o.protocol for o in self.own.values()):
            self.broken = f"broker {node} starts with protocol {software.protocol}, which is not the lowest that ran"
        if newest:
            self.lifted.add(node)
        self.running[node] = software
        self.up.add(node)
        self._let_leader_hang(node)

    def _let_leader_hang(self, node: int) -> None:
        """Let a leader of an older release have been refused by a newer controller while this broker stopped."""
        if self.kafka is None:
            return  # the brokers that were there before
        known = self.kafka.zk_controller
        controller = None if known is None else self.running.get(known)
        leaders = [other for other in sorted(self.up - {node}) if not self.running[other].is_new]
        if controller is not None and controller.is_new and leaders and self.hangs.random() < _HANGS:
            self.hanging = (self.hangs.choice(leaders), node)

    def renew_leaders(self) -> None:
        """Let every leader begin anew."""
        self.hanging = None

    def in_sync(self, in_sync: frozenset[int]) -> frozenset[int]:
        """Return the brokers that are in sync wherever they should be."""
        return in_sync if self.hanging is None else in_sync - {self.hanging[1]}

    def stop(self, node: int) -> None:
        """Let a broker's process be gone."""
        self.up.discard(node)
        if self.hanging is not None and self.hanging[0] == node:
            self.hanging = None  # another broker leads

    def configure(self, mode: BrokerMode, status: MigrationStatus) -> None:
        """Note what the template of a mode renders."""
        if mode is BrokerMode.UPGRADED:
            assert status.broker_upgrade is not None
            self.pin = status.broker_upgrade.protocol

    def restore(self, name: str, status: MigrationStatus) -> None:
        """Note what the owner's template is from now on."""
        upgrade = status.broker_upgrade
        if self.on and upgrade is not None and upgrade.needed and upgrade.lifted_at is not None:
            self.kept.add(name)

    # ------------------------------------------------------------------------------------------- observation

    def template(self, settings: dict[str, str]) -> dict[str, str]:
        """Return the settings that a template shows."""
        return {name: value for name, value in settings.items() if name != SETTING} if self.on else settings

    def survey(self, survey: Survey) -> Survey:
        """Return what the brokers tell of the protocol that they run."""
        if not self.on:
            return survey
        assert isinstance(survey.brokers, dict)
        told = {
            node: (*settings, setting(SETTING, self.running[node].protocol, SettingSource.DEFAULT))
            for node, settings in survey.brokers.items()
        }
        return replace(survey, brokers=told)

    def found(self, status: MigrationStatus, fine: DryStartReport, tag: str) -> DryStartReport:
        """Return what copies show: those in another mode than the present one have the new image."""
        upgrade = status.broker_upgrade
        if not self.on or upgrade is None or not upgrade.needed:
            return fine
        copies = []
        for copy in fine.copies:
            copies.append(self._with_software(copy, tag))
            if copy.key.mode is BrokerMode.ZOOKEEPER:
                key = replace(copy.key, mode=BrokerMode.UPGRADED)
                copies.append(self._with_software(_upgraded(replace(copy, key=key)), tag))
                if upgrade.lifts_alone:
                    key = replace(copy.key, mode=BrokerMode.LIFTED)
                    copies.append(self._with_software(_upgraded(replace(copy, key=key)), tag))
        return replace(fine, copies=tuple(copies), fingerprint=self.fingerprint(status, fine.fingerprint))

    def fingerprint(self, status: MigrationStatus, fine: str) -> str:
        """Return the fingerprint of what `found` returns for a report with the fingerprint ``fine``."""
        upgrade = status.broker_upgrade
        return fine if not self.on or upgrade is None or not upgrade.needed else f"{fine} {upgrade.protocol}"

    def _with_software(self, copy: CopyOutcome, tag: str) -> CopyOutcome:
        is_new = copy.key.mode is not BrokerMode.ZOOKEEPER
        live = self.running[copy.broker_id]
        of_live = (live.image, f"{tag}{NEW_DIGEST}" if live.is_new else tag)
        of_copy = (IMAGE, f"{tag}{NEW_DIGEST}") if is_new else (FORMER, tag)
        start = None if copy.start is None else replace(copy.start, kafka="3.9.2" if is_new else "2.8.2")
        return replace(copy, start=start, images=(ContainerImage("kafka", *of_live, *of_copy),))

    # ------------------------------------------------------------------------------------------- the user

    def happen(self, run: Run) -> None:
        """Let the user give the word some time after the operator has asked, and the controller move by itself."""
        if self.on and run.status.phase in _ON_THE_WAY and self.random.random() < _MOVES:
            run.cluster.kafka.expire_controller()
            run.coverage.faults["zookeeper_controller_moved"] += 1
        if self.hanging is not None:
            run.coverage.faults["leader_hanging"] += 1
        if self.random.random() < _SAYS:
            self.say(run)

    def say(self, run: Run) -> None:
        """Let the user give the word that the message asks for."""
        if self.on and not self.word and "spec.rollback.giveUpFormerImage" in run.status.message:
            self.word = True
            run._edit(rollback=run.spec.rollback.model_copy(update={"give_up_former_image": True}))
            run.coverage.faults["former_image_given_up"] += 1

    # ------------------------------------------------------------------------------------------- promises

    def trouble_entering(self, phase: Phase) -> str:
        """Return which promise the entry of a phase breaks, ``""`` when none."""
        if not self.on or phase not in (Phase.PROVISIONING_QUORUM, Phase.TAKING_OVER):
            return ""
        if former := sorted(node for node, software in self.running.items() if not software.is_new):
            return f"{phase} entered while broker {former[0]} runs the former image"
        if phase is Phase.TAKING_OVER and self.ids is not None and (words := self.ids.trouble()):
            return f"{phase} entered while {words}"
        return ""

    def trouble_at_rest(self, phase: Phase) -> str:
        """Return what is not as it must be at rest, ``""`` when all is."""
        if not self.on:
            return ""
        if phase is Phase.ROLLED_BACK and self.lifted and any(not s.is_new for s in self.running.values()):
            return "a broker runs the former image although one has run 3.9's protocol"
        if phase is Phase.ROLLED_BACK and self.lifted and any(not is_bridge(s.protocol) for s in self.running.values()):
            return "a broker kept the former protocol although one has run 3.9's"
        if phase is Phase.ROLLED_BACK and not self.lifted and any(s.is_new for s in self.running.values()):
            return "a broker did not get its former image back"
        if phase is Phase.COMPLETED and any(not s.is_new for s in self.running.values()):
            return "a broker runs the former image"
        return ""


def _upgraded(copy: CopyOutcome) -> CopyOutcome:
    """Return a copy in the present mode with the overlay of the mode that its key names."""
    overlay = {"kraftbridge.mode": copy.key.mode.lower()}
    if copy.start is None:
        return replace(copy, overlay=overlay)
    settings = {**copy.start.settings, **{name: GivenSetting(value) for name, value in overlay.items()}}
    return replace(copy, overlay=overlay, start=replace(copy.start, settings=settings))
