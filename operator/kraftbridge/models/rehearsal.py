"""Result of a rehearsal: the verdict, how Kafka ended, the entities that were lost, and the forecast for the takeover.

JSON has camelCase names; `schemaVersion` grows when a reader of the former version would misunderstand.
"""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from kraftbridge.models.catalogue import Code
from kraftbridge.models.report import Difference, Said, ZooKeeperAccess

SCHEMA_VERSION: Final = 1

REQUEST_KEY: Final = "rehearsal.json"
"""Key of the request in the ConfigMap of a rehearsal in a pod."""
PROPERTIES_KEY: Final = "controller.properties"
"""Key of the real controllers' configuration, without secrets."""
BROKERS_FOLDER: Final = "brokers"
"""Directory of the copy without topics and of its brokers, in that of the rehearsal."""
BROKERS_KEY: Final = "brokers.json.gz"
"""Key of the `RehearsedSettings` in ``binaryData``, compressed; absent where no broker is rehearsed."""
PLAN_KEY: Final = "plan.txt"
"""Key of the plan of the rolling restarts, a sentence in each line; absent while there is none."""
RESULT_KEY: Final = "result.json"
"""Key of the `RehearsalResult`."""
PAGE_KEY: Final = "rehearsal.html.gz"
"""Key of the page in ``binaryData``, compressed."""
RESULT_MARK: Final = "kraftbridge-rehearsal-result "
PAGE_MARK: Final = "kraftbridge-rehearsal-page "
"""Begin the lines of the pod's log that hold the result and the page, compressed and in base64:
a fenced pod reaches nobody."""


NOT_REHEARSED: Final = frozenset({"principal.builder.class"})
"""Classes of the real controllers that the scratch controller does not load
(`kraftbridge.rehearsal.settings.REPLACED`)."""

DEFAULT_HEAP_BYTES: Final = 512 << 20
"""Heap of a controller without ``spec.controllers.heapOptions`` and without a measurement that calls for more."""
BEYOND_HEAP_BYTES: Final = 256 << 20
"""Memory of a controller's JVM besides its heap.
Rehearsals with 330 to 20,000 partitions took less (docs/sizing.md)."""
_XMX: Final = re.compile(r"-Xmx(\d+)([kKmMgG]?)(?![^\s])")
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def heap_bytes(options: str) -> int | None:
    """Return the largest heap that JVM options allow (the last ``-Xmx``); None if they set none."""
    stated = _XMX.findall(options)
    if not stated:
        return None
    number, unit = stated[-1]
    return int(number) * _UNITS[unit.lower()]


def heap_options(heap: int | None) -> str:
    """Return the JVM options of a controller whose rehearsal called for a heap of ``heap`` bytes."""
    mebibytes = max(DEFAULT_HEAP_BYTES, heap or 0) >> 20
    return f"-Xms{mebibytes}m -Xmx{mebibytes}m"


class RehearsalVerdict(StrEnum):
    """Verdict of a rehearsal. Only `WORKS` opens a gate."""

    WORKS = "Works"
    """Kafka reached dual-write and its log holds everything that ZooKeeper held."""
    FAILS = "Fails"
    """Kafka ended before dual-write: `ending` says how."""
    LOSES = "Loses"
    """Kafka reached dual-write and lost or changed something: `differences` says what."""
    UNKNOWN = "Unknown"
    """The rehearsal did not run to its end, or some data could not be compared."""


WORST_FIRST: Final = (
    RehearsalVerdict.FAILS,
    RehearsalVerdict.LOSES,
    RehearsalVerdict.UNKNOWN,
    RehearsalVerdict.WORKS,
)


class Ending(StrEnum):
    """End of Kafka's migration in the rehearsal."""

    DUAL_WRITE = "DualWrite"
    NEVER_BEGINS = "NeverBegins"
    """It waits or retries for ever before the takeover: nothing is copied, ZooKeeper's controller stays in charge."""
    DIES = "Dies"
    """The controller's process exits."""
    STICKS = "Sticks"
    """It retries for ever after the takeover: no way to dual-write, and ZooKeeper's controller is fenced."""
    TIMED_OUT = "TimedOut"
    """It had not ended when the time limit was reached."""
    NOT_STARTED = "NotStarted"
    """The rehearsal's own parts did not start."""


class Stage(StrEnum):
    """Moments of Kafka's migration, in their order, as its controller's log tells them (``KRaftMigrationDriver``)."""

    QUORUM_READY = "quorumReady"
    BROKERS_REGISTERED = "brokersRegistered"
    CLAIMED = "claimed"
    """The takeover: `/controller` names the KRaft controller, and ZooKeeper's is fenced."""
    COPY_BEGINS = "copyBegins"
    COPY_ENDS = "copyEnds"
    SYNC_BEGINS = "syncBegins"
    SYNC_ENDS = "syncEnds"
    DUAL_WRITE = "dualWrite"


class _Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the JSON form with the field names of the contract."""
        return self.model_dump_json(by_alias=True, exclude_none=True, indent=indent)


class TreeSize(_Model):
    """Size of the ZooKeeper tree."""

    znodes: int = 0
    topics: int = 0
    partitions: int = 0
    brokers: int = 0


class Forecast(_Model):
    """Forecast for the takeover from the measured rehearsal. A value is None if the rehearsal did not get that far."""

    copy_seconds: float | None = None
    sync_seconds: float | None = None
    no_controller_seconds: float | None = None
    """From the claim of `/controller` to dual-write; in that time no leader is elected (KIP-866)."""
    heap_bytes: int | None = None
    """Heap (``-Xmx``) that a controller needs for this tree, with headroom."""
    minimum_batch_size: int | None = None
    """Value of ``zookeeper.metadata.migration.min.batch.size`` that shortens this copy; None: Kafka's default does."""
    measured_heap_bytes: int | None = None
    """Most that was in use after a collection."""


class Mend(Said):
    """A znode with a known problem, and the command that removes it."""

    code: Code
    znode: str
    problem: str
    command: str
    """Shell command against the live ZooKeeper, before the takeover."""


class TreeChanges(Said):
    """What Kafka's sync changed in the scratch ZooKeeper; paths, at most `MAXIMUM_PATHS` of each."""

    removed: list[str] = Field(default_factory=list)
    added: list[str] = Field(default_factory=list)
    changed: list[str] = Field(default_factory=list)


MAXIMUM_PATHS: Final = 200
"""Bound of the lists in `TreeChanges`."""


class ComparedSetting(Said):
    """A dynamic setting of a broker, and what is in force after a start in KRaft mode."""

    name: str
    stored: str | None = None
    """None for a secret."""
    holds: str | None = None
    """Value in force; None for a secret, and where there is none."""
    held: bool
    """Whether the stored value is in force."""


class BrokerRehearsal(Said):
    """What Kafka's own broker did with one pair of static and dynamic settings in KRaft mode."""

    broker: int
    """Id of the broker that was started."""
    alike: list[int] = Field(default_factory=list)
    """Other brokers with an equal pair."""
    verdict: RehearsalVerdict
    """`WORKS`: every dynamic setting is in force. `FAILS`: Kafka refused some, or did not start."""
    reason: str
    compared: list[ComparedSetting] = Field(default_factory=list)
    """The dynamic settings that were compared; those that had to be replaced are among `replaced_settings`."""
    words: list[str] = Field(default_factory=list)
    """Errors in the broker's log, without repetitions."""
    replaced_settings: dict[str, str] = Field(default_factory=dict)
    """Settings that the rehearsal had to replace, and why: what Kafka says of their real values stays unknown."""
    seconds: float = 0.0

    @property
    def unheld(self) -> list[ComparedSetting]:
        """The dynamic settings that are not in force."""
        return [setting for setting in self.compared if not setting.held]


class Judgement(Said):
    """A verdict with its reason."""

    verdict: RehearsalVerdict
    reason: str


class RehearsalResult(Said):
    """Result of one rehearsal."""

    schema_version: Literal[1] = SCHEMA_VERSION
    verdict: RehearsalVerdict
    reason: str
    """Reason of the verdict, in one sentence."""
    ending: Ending
    tree: TreeSize = Field(default_factory=TreeSize)
    stages_seconds: dict[Stage, float] = Field(default_factory=dict)
    """Moment of each stage that was reached, in seconds after the controller's start."""
    forecast: Forecast = Field(default_factory=Forecast)
    differing: int = 0
    """Exact number of entities that were lost or changed; `differences` may hold fewer."""
    differences: list[Difference] = Field(default_factory=list)
    """Entities of the tree from before that the log at the copy's end does not hold, or holds with other attributes."""
    mends: list[Mend] = Field(default_factory=list)
    problems: list[str] = Field(default_factory=list)
    """Problems of the rehearsal itself. Any entry rules out `WORKS`."""
    words: list[str] = Field(default_factory=list)
    """Warnings and errors in the controller's log, without repetitions."""
    sync: TreeChanges = Field(default_factory=TreeChanges)
    mirror: list[Difference] = Field(default_factory=list)
    """Entities of ZooKeeper after the sync that differ from the log: a verification in dual-write would find them."""
    copied: str | None = None
    """Kafka's own summary of the copy."""
    synced: str | None = None
    """Kafka's own summary of the sync."""
    brokers: list[BrokerRehearsal] = Field(default_factory=list)
    """Brokers that were started in KRaft mode, if their settings were given."""
    controllers: Judgement | None = None
    """What the verdict is without these brokers; None where there are none."""
    replaced_settings: dict[str, str] = Field(default_factory=dict)
    """Settings of the real controllers that the rehearsal had to replace, and why; values are not shown."""
    plan: list[str] = Field(default_factory=list)
    """The rolling restarts that are ahead, as preflight plans them."""
    kafka_version: str = ""
    release_version: str = ""
    controller_heap_bytes: int = 0
    """Heap that the controller was given."""
    started_at: datetime
    finished_at: datetime
    timings_seconds: dict[str, float] = Field(default_factory=dict)
    """Wall-clock time of the rehearsal's own steps."""

    @property
    def of_controllers(self) -> Judgement:
        """The verdict on Kafka's migration alone, without the brokers that were started afterwards."""
        return self.controllers or Judgement(verdict=self.verdict, reason=self.reason)


class RehearsedSettings(_Model):
    """The static settings with which a rehearsal starts a broker in KRaft mode."""

    broker: int
    image: str
    """Image whose Kafka runs."""
    settings: dict[str, str]
    """Without secrets, which a dry start knows only by their hashes."""
    left_out: dict[str, str] = Field(default_factory=dict)
    """Other settings of the broker, and why their values are not here."""


class RehearsalRequest(_Model):
    """What a rehearsal in a pod is asked; the controllers' configuration is in the same ConfigMap."""

    run_id: str
    zookeeper: ZooKeeperAccess
    bootstrap_servers: str
    """Addresses that the fenced pod must not reach, beside ZooKeeper's and the API server's."""
    beyond_the_cluster: tuple[str, ...] = ()
    """More of them: a cloud's metadata server, and an address outside of the cluster."""
    release_version: str
    """The brokers' ``inter.broker.protocol.version``."""
    heap_bytes: int
    zookeeper_heap_bytes: int
    password_encoder_secret_path: str | None = None
    listener_path: str | None = None
    """``listener.properties`` of the controllers."""
    timeout_seconds: int = 1800
    """``spec.rehearsal.timeoutSeconds``: the brokers of the rehearsal must leave time for the result."""
