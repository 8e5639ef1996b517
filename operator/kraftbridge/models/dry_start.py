"""What a dry start finds: for each copy of a broker's pod, the configuration that its image gives to Kafka.

A dry start runs fenced copies of the brokers' pods with the user's image,
init containers and command under an agent that reports Kafka's configuration instead of starting Kafka (``agent/``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.spec import BrokersSpec

PLAN_KEY: Final = "plan.json"
"""Key of the `DryStartPlan` in the ConfigMap of a dry start."""
UNKNOWN_BROKER: Final = -1
"""Id of a copy that shows the id of its broker, and has nothing else to show."""
NOT_PULLED_KEY: Final = "not-pulled.json"
"""Key of the images that nodes could not get."""
PROBLEM_KEY: Final = "problem"
"""Key of the reason why a run cannot go on."""


@dataclass(frozen=True, slots=True)
class GivenSetting:
    """A setting or system property that a copy gives to Kafka."""

    value: str | None = None
    """Spelled as DescribeConfigs spells it (``ConfigDef.convertToString``); None for null, and where it is
    sensitive."""
    hash: str = ""
    """Of a sensitive value: HMAC-SHA256 with the run's salt. Equal values have equal hashes within one run only."""

    @property
    def sensitive(self) -> bool:
        """Whether only the hash is known."""
        return bool(self.hash)


@dataclass(frozen=True, slots=True)
class ListenerOfControllers:
    """What the controllers' listener shows to brokers, and what it asks of them."""

    protocol: str
    certificate: str = ""
    """Its certificate with the chain, as PEM; empty without TLS."""
    authorities: str = ""
    """Authorities of the certificates that brokers must show, as PEM; empty where they need none."""
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Passwords by user of SASL/PLAIN; empty without SASL."""


@dataclass(frozen=True, slots=True)
class JavaProgram:
    """A JVM that an image started beside Kafka."""

    main: str
    arguments: str
    """Arguments, without secret values."""
    ran: bool
    """Whether it ran (``StorageTool``) or was skipped because it could reach the cluster."""


@dataclass(frozen=True, slots=True)
class KafkaStart:
    """Configuration with which one copy would start Kafka."""

    valid: bool
    """Whether Kafka's own ``KafkaConfig`` accepts the configuration."""
    complaint: str = ""
    """Kafka's error message if it does not."""
    settings: Mapping[str, GivenSetting] = field(default_factory=dict)
    """What DescribeConfigs would list as static: settings given, and those with a given synonym."""
    system_properties: Mapping[str, GivenSetting] = field(default_factory=dict)
    """``-D`` flags of the command line."""
    jaas_entries: Mapping[str, str] = field(default_factory=dict)
    """Hash of each entry of the JAAS file."""
    missing_classes: tuple[str, ...] = ()
    """Settings whose class the image does not have."""
    mounted_classes: tuple[str, ...] = ()
    """Settings whose class comes from a volume of the pod, not from the image."""
    mount_points: Mapping[str, str] = field(default_factory=dict)
    """What is mounted where each log directory is, by its path: a mount point, or ``/`` where there is none."""
    programs: tuple[JavaProgram, ...] = ()
    refusals: tuple[str, ...] = ()
    """Why the broker and the controllers' listener would not accept each other."""
    untried: str = ""
    """Why that could not be told."""
    address_cache_seconds: int | None = None
    """How long its JVM caches addresses, -1 for ever; None if the JVM does not tell."""
    kafka: str = ""
    java: str = ""
    host: str = ""
    """Host name of the copy."""


@dataclass(frozen=True, slots=True)
class CopyKey:
    """Pod and mode of the copy."""

    stateful_set: str
    ordinal: int
    mode: BrokerMode
    channel: str = ""
    """Another channel than the one in ``spec.brokers``, as `kraftbridge.copies.dry_start.described` writes it;
    ``""`` for that one."""

    @property
    def pod(self) -> str:
        """Name of the live pod."""
        return f"{self.stateful_set}-{self.ordinal}"


@dataclass(frozen=True, slots=True)
class ContainerImage:
    """Image of one container in the running pod and in its copy, as the node resolved it.

    Source: ``ContainerStatus.imageID``.
    """

    container: str
    live: str
    """Image in the running pod's spec."""
    live_id: str
    """What runs; ``""`` if Kubernetes does not tell."""
    copy: str
    """Image in the copy's spec."""
    copy_id: str
    """What the copy started; ``""`` if Kubernetes does not tell."""
    live_node: str = ""
    copy_node: str = ""


@dataclass(frozen=True, slots=True)
class CopyOutcome:
    """Result of one copy."""

    key: CopyKey
    broker_id: int
    start: KafkaStart | None
    """None if the copy did not reach the start of Kafka."""
    problem: str = ""
    """Reason why it did not, subject first."""
    words: str = ""
    """Last lines of output of the image."""
    programs: tuple[JavaProgram, ...] = ()
    """JVMs that the log names where Kafka's start was not reached."""
    overlay: Mapping[str, str] = field(default_factory=dict)
    """Settings that the mode sets, ``{}`` in the present mode."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """The copy's own names and addresses, each with the live pod's."""
    images: tuple[ContainerImage, ...] = ()
    """Kafka's container and the user's init containers; none if the copy has no pod."""
    judged: bool = True
    """False if Kubernetes kept the copy from running: its problem says nothing about its image or its mode then."""


@dataclass(frozen=True, slots=True)
class PullKey:
    """Whose images are pulled on which node."""

    owner: str
    """``StatefulSet/NAME``, or ``controllers``."""
    node: str
    """``""`` where no node takes the owner's pods."""


@dataclass(frozen=True, slots=True)
class ImagePull:
    """An image that a node could not get."""

    key: PullKey
    image: str
    """``""`` where none of the owner's images was tried there."""
    problem: str
    """Reason."""


@dataclass(frozen=True, slots=True)
class DryStartReport:
    """One dry start of all StatefulSets."""

    fingerprint: str
    """Fingerprint of all inputs of the copies."""
    copies: tuple[CopyOutcome, ...] = ()
    trials: tuple[CopyOutcome, ...] = ()
    """Copies with the overlay in other channels; only where the channel of ``spec.brokers`` does not reach the
    brokers."""
    reached: tuple[str, ...] = ()
    """Addresses that the probe pod reached although the NetworkPolicy closes it;
    no copy was started then, unless the user accepts that."""
    problem: str = ""
    """Reason why there are no copies, subject first."""
    untried: str = ""
    """Reason why the brokers' credentials for the controllers' listener could not be tried."""
    not_pulled: tuple[ImagePull, ...] = ()
    """Images of the next pods that nodes could not get."""
    nodes_unknown: str = ""
    """Reason why no node could be asked for them."""

    @property
    def is_of_ids(self) -> bool:
        """Whether its copies show which pod has which broker, and were made without knowing it.

        Their directories were blank, so they say nothing else about the brokers.
        """
        return bool(self.copies) and all(copy.broker_id == UNKNOWN_BROKER for copy in self.copies)


class DryStartStage(StrEnum):
    """What a dry start does: each stage ends before the next one begins."""

    PROBE = "Probe"
    """The copies are made behind their gates, and a pod proves the fence."""
    COPIES = "Copies"
    """The copies in the channel of ``spec.brokers`` run."""
    FIRST_TRIALS = "FirstTrials"
    """Copies of the first pods run with the overlay in other channels."""
    LAST_TRIALS = "LastTrials"
    """Copies of the last pods run in the channels that reach the first ones."""
    PULLS = "Pulls"
    """Each node that may get a pod of the brokers or a controller gets its images."""

    @property
    def made_key(self) -> str:
        """Key of the pods that were made for this stage, and of those that were refused."""
        return f"made-{self.lower()}.json"

    @property
    def outcomes_key(self) -> str:
        """Key of what the copies of this stage showed, in ``binaryData``, compressed."""
        return f"{self.lower()}.json.gz"


@dataclass(frozen=True, slots=True)
class DryStartPlan:
    """What a dry start sets out to do, as it was recorded when its first pods were made."""

    copies: tuple[CopyKey, ...] = ()
    trials: tuple[CopyKey, ...] = ()
    """Copies with the overlay in other channels, of which only those are made that are called for."""
    closed: tuple[str, ...] = ()
    """Addresses that the operator has reached, and that the fence must close."""
    untried: str = ""
    """Reason why the brokers' credentials for the controllers' listener cannot be tried."""
    pulls: tuple[PullKey, ...] = ()
    """Whose images each node gets."""
    nodes_unknown: str = ""
    """Reason why no node can be asked for them."""


@dataclass(frozen=True, slots=True)
class MadePods:
    """Pods of a stage, as they were compared with what was asked for."""

    pods: Mapping[str, str] = field(default_factory=dict)
    """Digest of each pod's spec by the pod's name; only a pod that still has it is let go."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Why a pod was not made, or not let go, by its name."""


@dataclass(frozen=True, slots=True)
class RunPod:
    """A pod of a run, as Kubernetes shows it."""

    name: str
    gated: bool = False
    """Whether its scheduling gate still holds it back."""
    ended: bool = False
    trouble: str = ""
    """Reason why it does not run."""


@dataclass(frozen=True, slots=True)
class FenceProof:
    """How the pod ended that tries to reach what the fence closes."""

    pod: str
    ended: bool = False
    reached: tuple[str, ...] = ()
    """Addresses that it could still reach when it ended."""
    trouble: str = ""
    """Reason why it does not run, or how it ended without a proof."""


@dataclass(frozen=True, slots=True)
class DryStartRun:
    """Pods and ConfigMap of the dry start that runs."""

    run_id: str
    plan: DryStartPlan | None = None
    """None until it is recorded."""
    problem: str = ""
    """Reason why the run cannot go on, subject first."""
    made: frozenset[DryStartStage] = frozenset()
    """Stages whose pods were all made, or refused, and compared with what was asked for."""
    pods: tuple[RunPod, ...] = ()
    """Those of the present stage that are there, in the order of the plan."""
    proof: FenceProof | None = None
    """None until the fence is closed and a pod tries it."""
    collected: Mapping[DryStartStage, tuple[CopyOutcome, ...]] = field(default_factory=dict)
    """What the copies of the stages that have ended showed."""


@dataclass(frozen=True, slots=True)
class DryStartState:
    """State of the dry start of a migration."""

    fingerprint: str
    """Fingerprint of the present inputs of the copies."""
    report: DryStartReport | None = None
    """The last dry start that ended."""
    run: DryStartRun | None = None
    """The dry start that the status names as running."""
    off: bool = False
    """Whether the operator is configured without dry starts."""
    channels: tuple[BrokersSpec, ...] = ()
    """``spec.brokers`` with each channel that the pod templates may have, the most likely first;
    only in preflight with ``configStyle: Auto``."""

    @property
    def latest(self) -> DryStartReport | None:
        """The report, if it is about the present inputs."""
        if self.report is None or self.report.fingerprint != self.fingerprint:
            return None
        return self.report

    @property
    def current(self) -> DryStartReport | None:
        """The report, if it is about the present inputs and judges the brokers."""
        return None if self.latest is None or self.latest.is_of_ids else self.latest
