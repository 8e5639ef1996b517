"""One simulated migration under random faults, and the promises that are checked after every step of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random

from tests.simulation.aims import Aims
from tests.simulation.batches import SETS as LARGE_SETS
from tests.simulation.batches import Layout
from tests.simulation.certificates import Certificates
from tests.simulation.channels import OpenChannel, channels
from tests.simulation.cluster import BROKER_SETS, Cluster, Trouble, Workload
from tests.simulation.endings import GRACE_SECONDS, Endings
from tests.simulation.frozen import FrozenOperators
from tests.simulation.kafka import BROKERS, CONTROLLERS
from tests.simulation.kafka4 import ToKafka4
from tests.simulation.outages import Outages
from tests.simulation.paths import Walls
from tests.simulation.rests import Rests
from tests.simulation.settings import Settings
from tests.simulation.stores import Stores
from tests.simulation.templates import Templates
from tests.simulation.uids import Uids

from kraftbridge.copies.dry_start import described
from kraftbridge.models.catalogue import Code
from kraftbridge.models.conditions import ConditionType, Reason, condition
from kraftbridge.models.decision import (
    Action,
    ApplyControllers,
    ConfigureBrokers,
    CreatePartitionStates,
    Decision,
    RemoveControllerClaim,
    RestartPod,
    RestoreStatefulSet,
    StopControllers,
    WriteCanary,
)
from kraftbridge.models.metadata_version import FEATURE
from kraftbridge.models.observation import ActionOutcome, Observation, Unobserved
from kraftbridge.models.phase import FORWARD, LAST_PHASE, BrokerMode, ControllerMode, Phase, Target, ZkMigrationState
from kraftbridge.models.rehearsal import RehearsalVerdict
from kraftbridge.models.report import Profile, Verdict
from kraftbridge.models.spec import (
    AcceptedFinding,
    ConfigStyle,
    ControllerVolumes,
    HandOver,
    Healing,
    MigrationSpec,
    OnDeletion,
    RehearsalSpec,
    StatefulSetRef,
)
from kraftbridge.models.status import MigrationStatus, VerificationStatus, tuned_controllers
from kraftbridge.phases import expired, machine
from kraftbridge.phases.draft import Identity, Migration

SAME_NAME = 0.5
"""Part of the migrations that begin anew after a rollback which do so as another resource of the same name."""
TOPICS_MEANWHILE = 0.15
"""Part of the runs with faults in which a client creates a topic in the seconds of the takeover."""
MAX_AGE_SECONDS = 300
NEXT_UID = 0x9E3779B9
"""Odd, so that no UID comes back."""
REHEARSAL_MAX_AGE_SECONDS = 600
NOT_REHEARSED = 5
"""Remainder of the seeds (modulo 8) whose migrations switch the rehearsal off."""
ISSUED = 2
"""Remainder of the seeds (modulo 4) for which the operator issues the certificates of the controllers' listener."""
REHEARSED_WITH_TROUBLE = 3
"""Remainder of the seeds (modulo 8) whose rehearsals may fail, hang or end without a verdict."""
LONE_TOPICS = (11, 13)
"""Remainders of the seeds (modulo 16) in whose migrations topics of one replica are made after preflight."""
FENCED = (11, 26)
"""Remainders of the seeds (modulo 32) in whose migrations the heartbeats of a broker are lost for a while."""
HEARTBEATS_LOST_CHANCE = 0.04
REFUSING = 1
"""Remainder of the seeds (modulo 8) in whose clusters a start in KRaft mode refuses the dynamic settings."""
SLOW_STARTS = 6
"""Remainder of the seeds (modulo 8) in whose clusters brokers recover their logs for minutes."""
TARGETS = [Target.KRAFT, Target.KRAFT, Target.KRAFT_BROKERS, Target.DUAL_WRITE, Target.QUORUM_READY]
OPEN_CHANNEL = 7
"""Remainder of the seeds (modulo 11) whose migrations leave the channel to the operator."""
CLEANED = 4
"""Remainder of the seeds (modulo 8) whose users ask for controllers without the operator's image from the beginning."""
CLEANED_LATER = 0
"""Remainder of the seeds (modulo 8) whose users ask for them once the migration is completed."""
LONE_TOPIC_CHANCE = 0.02
LONE_TOPIC_SEEN_SECONDS = 30.0
"""Age from which a topic must hold back the restart of its broker: how old a reading of the redundancy may be."""
SYNC_PATIENCE_SECONDS = 20
SKEW_SECONDS = 200.0
"""How much the operator's clock may be off, in either direction."""
SPEC = MigrationSpec.model_validate(
    {
        "zookeeper": {"connect": "zk:2181"},
        "brokers": {"statefulSets": [{"name": "kafka"}], "bootstrapServers": "kafka:9092"},
        "verification": {"maxAgeSeconds": MAX_AGE_SECONDS, "deadlineSeconds": 90},
        "strategy": {
            "terminationGraceSeconds": GRACE_SECONDS,
            "addressCacheSeconds": 4,
            "sessionTimeoutHoldSeconds": 10,
            "syncPatienceSeconds": SYNC_PATIENCE_SECONDS,
        },
    }
)
PATIENCE = timedelta(hours=1)
"""Virtual time within which a run must be at rest once nothing goes wrong any more."""
MAX_STEPS = 4000


class BrokenPromiseError(AssertionError):
    """The operator did what it promised never to do."""


def issuing(spec: MigrationSpec) -> MigrationSpec:
    """Return a spec whose controllers' listener has certificates of the operator; the brokers' settings do not show theirs."""
    listener = spec.controllers.listener.model_copy(update={"generate": True})
    accepted = (*spec.preflight.accepted, AcceptedFinding(code=str(Code.BROKER_CREDENTIALS_MISSING)))
    return spec.model_copy(
        update={
            "controllers": spec.controllers.model_copy(update={"listener": listener}),
            "preflight": spec.preflight.model_copy(update={"accepted": accepted}),
        }
    )


def stalled_for(status: MigrationStatus, reason: Reason) -> bool:
    """Whether a person is asked for help, for this reason."""
    stalled = condition(status.conditions, ConditionType.STALLED)
    return stalled is not None and stalled.status == "True" and stalled.reason == reason


@dataclass
class Faults:
    """How often what goes wrong; each kind is on in about half of the runs."""

    kill: float = 0.0
    conflict: float = 0.0
    lost_reply: float = 0.0
    failed_act: float = 0.0
    unseen: float = 0.0
    stale: float = 0.0
    stale_metadata: float = 0.0
    broker_crash: float = 0.0
    broker_hung: float = 0.0
    broker_evicted: float = 0.0
    controller_crash: float = 0.0
    controller_evicted: float = 0.0
    zookeeper_down: float = 0.0
    zookeeper_edited: float = 0.0
    lost_write: float = 0.0
    eviction_blocked: float = 0.0
    refused: float = 0.0
    deleted: float = 0.0
    lease_lost: float = 0.0
    taken_back: float = 0.0
    time_jump: float = 0.0
    clock_skew: float = 0.0
    pause: float = 0.0
    retarget: float = 0.0
    controllers_edited: float = 0.0

    @classmethod
    def drawn(cls, random: Random) -> Faults:
        """Return a mixture; one run in eight is free of faults."""
        if random.random() < 0.125:
            return cls()
        scale = {
            "kill": 0.1, "conflict": 0.1, "lost_reply": 0.1, "failed_act": 0.1, "unseen": 0.1, "stale": 0.3, "stale_metadata": 0.05, "broker_crash": 0.02,
            "broker_hung": 0.05,
            "broker_evicted": 0.015, "controller_crash": 0.02, "controller_evicted": 0.015, "zookeeper_down": 0.02, "zookeeper_edited": 0.01,
            "lost_write": 0.02, "eviction_blocked": 0.5, "refused": 0.05, "deleted": 0.002, "lease_lost": 0.005, "taken_back": 0.02, "time_jump": 0.01, "clock_skew": 0.02, "pause": 0.02, "retarget": 0.02, "controllers_edited": 0.01,
        }  # fmt: skip
        return cls(**{name: most * random.random() if random.random() < 0.5 else 0.0 for name, most in scale.items()})


@dataclass
class Coverage:
    """What runs have been through."""

    states: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Phase and act (or ``-``)."""
    transitions: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    worlds: Counter[tuple[str, str]] = field(default_factory=Counter)
    """What happened to a store, and the phase in which it did."""
    steps: int = 0


class Run:
    """One migration from its creation to its rest."""

    def __init__(self, seed: int, coverage: Coverage, *, guarded: bool = True) -> None:  # noqa: PLR0915 - one line per world
        self.guarded = guarded
        self.random = Random(seed)
        self.coverage = coverage
        self.identity = Identity("kafka", "demo", f"{seed:08x}-uid", 1)
        sets = self.random.choice([1, 1, 2])
        self.layout = Layout(seed, troubled=True)
        self.cluster = Cluster(self.random, self.identity, sets, self.layout)
        self.cluster.generation_of = {}
        self.faults = Faults.drawn(self.random)
        self.layout.troubled = self.faults != Faults()
        self.chances = {name: chance for name, chance in vars(self.faults).items() if chance}
        self.faults_end = self.random.uniform(60.0, 900.0)
        if self.faults != Faults():
            self.cluster.trouble = Trouble(*(self.random.random() * p for p in (0.2, 0.05, 0.1, 0.15, 0.1)))
            self.cluster.kafka.stuck_chance = self.random.choice([0.0, 0.3, 0.8])
            self.cluster.kafka.deaf = self.random.random() < 0.2
            # Drawn apart: the other draws of a seed stay what they were.
            self.cluster.kafka.makes_topics_meanwhile = Random(f"topics of {seed}").random() < TOPICS_MEANWHILE
            self.coverage.faults["topic_during_the_takeover"] += self.cluster.kafka.makes_topics_meanwhile
            self.coverage.faults["controllers_cannot_log_in"] += self.cluster.kafka.deaf
            # Few: a migration that stays in preflight until the faults end proves nothing about the phases after it.
            if seed % 8 == REHEARSED_WITH_TROUBLE:
                own = self.cluster.rehearsal_random
                self.cluster.trouble.rehearsal_fails = own.choice([0.0, 0.5])
                self.cluster.trouble.rehearsal_unknown = own.choice([0.0, 0.3])
                self.cluster.trouble.rehearsal_hangs = own.choice([0.0, 0.2])
                self.cluster.dry_starts.hangs = own.choice([0.0, 0.2])
        self.creation_failed = False
        """Whether the operator could not create the state of partitions that have none in ZooKeeper."""
        self.stores = Stores(seed, troubled=self.faults != Faults())
        self.settings = Settings(seed, troubled=self.faults != Faults())
        self.cluster.settings = self.settings
        self.templates = Templates(seed)
        self.cluster.own_templates(self.templates)
        self.uids = self.cluster.uids = Uids(seed)
        self.certificates = Certificates(seed, troubled=self.faults != Faults() and seed % 4 == ISSUED)
        self.cluster.certificates = self.certificates
        self.walls = self.cluster.walls = Walls(seed, troubled=self.faults != Faults())
        self.endings = self.cluster.endings = Endings(seed, troubled=self.faults != Faults())
        self.decided_at = self.cluster.moment(0.0)
        """Time of the last decision, by the clock of the operator."""
        self.outages = Outages(seed, troubled=self.faults != Faults())
        self.frozen = FrozenOperators(seed, troubled=self.faults != Faults())
        self.rests = Rests()
        self.aims = Aims(seed, troubled=self.faults != Faults())
        # Of their own: the other draws of a seed stay what they were.
        self.lone_random = Random(f"lone topics of {seed}") if seed % 16 in LONE_TOPICS else None
        self.fenced_random = Random(f"heartbeats of {seed}") if seed % 32 in FENCED else None
        if self.lone_random is not None:
            self.chances.pop("clock_skew", None)  # it would make a reading older than it looks
            self.cluster.redundancy_kept_for = timedelta(seconds=self.lone_random.choice([10, 120]))
        rehearsal = RehearsalSpec(
            enabled=seed % 8 != NOT_REHEARSED, timeout_seconds=90, max_age_seconds=REHEARSAL_MAX_AGE_SECONDS
        )
        spec = self._spec_of(self.random.choice(TARGETS), sets).model_copy(update={"rehearsal": rehearsal})
        spec = issuing(spec) if seed % 4 == ISSUED else spec
        if seed % 8 == CLEANED:
            spec = spec.model_copy(update={"hand_over": HandOver.CLEAN})
        self.cleans_later = seed % 8 == CLEANED_LATER
        self.leg = self.cluster.leg
        self.to_kafka4 = self.cluster.to_kafka4 = ToKafka4(seed, troubled=self.faults != Faults())
        self.spec = self.layout.spec(self.leg.spec(spec))
        if seed % 11 == OPEN_CHANNEL:
            self._leave_the_channel_open(Random(f"channel of {seed}"))
        self.cluster.becoming.refusing = seed % 8 == REFUSING
        if seed % 8 == SLOW_STARTS:
            self.cluster.slow_starts.random = Random(f"slow starts of {seed}")
        self.looked_at = self.lone_until = self.skew = 0.0
        self.deleted = False
        """Somebody asked for the resource's deletion: the finalizer keeps it until nothing of the user's is held."""
        self.migrations_wanted = 1
        self.status = MigrationStatus()
        self.pace = self.random.choice([1.0, 3.0, 6.0, 10.0])
        """How long this operator takes for a look at most, in seconds."""
        self.canary_committed: int | None = None
        self.outcomes: tuple[ActionOutcome, ...] = ()
        self.former_look: tuple[float, Observation] | None = None
        self.former_sick: frozenset[int] = frozenset()
        self.down_by_us: dict[int, str] = {}
        """Brokers that we stopped, with the UID of the pod that went, until the successor is in sync."""
        self.patience = PATIENCE * (len(self.cluster.kafka.nodes) // len(BROKERS))
        self.stopped_at: dict[int, float] = {}
        """When we last stopped a broker that served."""
        self.entered_finalizing = False
        self.failovers: set[str] = set()
        """Pods that the healing under way has restarted."""
        self.last_healed: tuple[object, ...] = ()
        """The healing that ended last, to tell the next one's failovers from its."""
        self.controllers_of: dict[str, str] = {}
        """Name of the controllers' StatefulSet, which their volumes carry, and the UID of the resource that made it."""
        self.rested_in = ("", 0)
        """UID and attempt of the last rollback that came to rest."""
        self.trail: list[str] = []

    def _leave_the_channel_open(self, random: Random) -> None:
        """Let the operator find the channel; some pod templates change before the first broker restarts."""
        known = channels(self.spec.brokers)
        self.cluster.channel = OpenChannel(random, known, described(random.choice(known)))
        brokers = self.spec.brokers.model_copy(update={"config_style": ConfigStyle.AUTO})
        self.spec = self.spec.model_copy(update={"brokers": brokers})

    def _spec_of(self, target: Target, sets: int) -> MigrationSpec:
        """Return a spec for one or two StatefulSets, of those that users write."""
        choice = self.random.choice
        strategy = SPEC.strategy.model_copy(
            update={"hybrid_soak_seconds": choice([0, 0, 25]), "pure_soak_seconds": choice([0, 0, 40])}
        )
        changes = {
            "target": target,
            "strategy": strategy,
            "verification": SPEC.verification.model_copy(update={"healing": choice([*Healing, Healing.AUTO])}),
            "rollback": SPEC.rollback.model_copy(
                update={
                    "accept_loss": choice([False, False, False, True]),
                    "controller_volumes": choice([*ControllerVolumes]),
                }
            ),
            "brokers": SPEC.brokers.model_copy(
                update={
                    "stateful_sets": tuple(
                        StatefulSetRef(name=name) for name, _ in (LARGE_SETS if self.layout.on else BROKER_SETS)[:sets]
                    )
                }
            ),
        }
        return SPEC.model_copy(update=changes)

    # ----------------------------------------------------------------------------------------------- loop

    def play(self) -> None:
        """Run to its end; `BrokenPromiseError` tells of the first broken promise."""
        calm_until: float | None = None
        most_steps = MAX_STEPS * len(self.cluster.kafka.nodes) // len(BROKERS)
        for _ in range(most_steps):
            now = self.cluster.time.now
            if now >= self.faults_end and calm_until is None:
                calm_until = now + self.patience.total_seconds()
                self._calm_down()
            self.stores.recover(self)
            if self.aims.happen(self) and calm_until is not None:
                calm_until = now + self.patience.total_seconds()
            if calm_until is None:
                self._let_happen()
            self.step()
            if self.deleted and not machine.deletion_blocker(self.status):
                if self.status.phase is not Phase.PROVISIONING_QUORUM:
                    self._check_end()
                elif self.cluster.controllers is not None and not self.cluster.controllers.deleting:
                    self._break("the migration was deleted, and its controllers stay")
                self.coverage.ends["deleted"] += 1
                return
            if calm_until is not None:
                if self._at_rest():
                    self._check_end()
                    if self.to_kafka4.asks(self):
                        # What goes wrong goes wrong on this way, too.
                        calm_until = None
                        self.faults_end = self.cluster.time.now + self.to_kafka4.random.uniform(60.0, 600.0)
                        continue
                    if self.cleans_later and self.status.phase in (Phase.COMPLETED, Phase.KAFKA4):
                        self.cleans_later = False
                        self._edit(hand_over=HandOver.CLEAN)
                        calm_until = self.cluster.time.now + self.patience.total_seconds()
                        continue
                    if self._migrates_again():
                        if self.random.random() < SAME_NAME:
                            self._create_again()
                        self._edit(target=Target.KRAFT)  # and migrates again
                        calm_until = self.cluster.time.now + self.patience.total_seconds()
                        continue
                    if self.frozen.asleep is None:
                        self.coverage.ends[self.status.phase] += 1
                        return
                    self.cluster.time.advance(max(0.0, self.frozen.asleep.wakes_at - self.cluster.time.now))
                self._lend_a_hand()
                if self.cluster.time.now > calm_until:
                    self._break(
                        f"not at rest {self.patience} after the last fault: {self.status.phase}: {self.status.message}"
                    )
        self._break(f"not at rest after {most_steps} steps: {self.status.phase}: {self.status.message}")

    def _let_happen(self) -> None:
        """Let every world do what it does in a step in which something may go wrong."""
        self.stores.happen(self)
        self.settings.happen(self)
        self.templates.happen(self)
        self.uids.happen(self)
        self.certificates.happen(self)
        self.walls.happen(self)
        self.endings.happen(self)
        self.layout.happen(self)
        self.leg.happen(self)
        self.to_kafka4.happen(self)
        self._misfortune()
        self._move_the_tag()

    def _migrates_again(self) -> bool:
        """Whether the user tries again after a rollback; asked once after each."""
        if self.status.phase is not Phase.ROLLED_BACK or self.rested_in == (self.identity.uid, self.status.attempt):
            return False
        self.rested_in = (self.identity.uid, self.status.attempt)
        return self.status.attempt <= 2 and self.random.random() < 0.3

    def step(self) -> None:
        """Observe, decide, publish, act; then let time pass."""
        self.coverage.steps += 1
        self.outages.wait(self)
        self.frozen.wake(self)
        cluster, before = self.cluster, self.status
        self.decided_at = now = cluster.moment(cluster.time.now + self.skew)
        observation, sick = self._look(now)
        try:
            decision = machine.decide(Migration(self.identity, self.spec, before), observation, now)
        except Exception as e:
            raise BrokenPromiseError(f"decide raised {e!r}") from e
        phase = str(before.phase)
        if self._happens("conflict"):
            cluster.time.advance(0.2)
            return
        line = f"{phase}: {decision.status.message} {[type(a).__name__ for a in decision.actions]}"
        if not self.trail or self.trail[-1][10:] != line:
            self.trail.append(f"{cluster.time.now:9.1f} {line}")
        self.status = decision.status
        self.uids.note_look(self)
        if before.attempt != decision.status.attempt:
            self.endings.begin_anew()
        self.endings.note_decision(decision.status)
        self.stores.note_reading(self, observation)
        for v in decision.status.verifications:
            self.cluster.generation_of.setdefault(v.run_id, v.generation)
        self._check_transition(before, decision)
        if before.phase is not decision.status.phase:
            self.coverage.transitions[phase, str(decision.status.phase)] += 1
        if not decision.actions:
            self.coverage.states[phase, "-"] += 1
        outcomes: list[ActionOutcome] = []
        for done, action in enumerate(decision.actions):
            if self._happens("kill") or self.frozen.freezes(self, decision, done, observation, sick):
                self._restart_operator()
                outcomes = []
                break
            outcomes.append(self._carry_out(action, sick))
            self.coverage.states[phase, type(action).__name__] += 1
            self.creation_failed |= isinstance(action, CreatePartitionStates) and bool(outcomes[-1].error)
            if outcomes[-1].error:
                break  # a later act may rest upon this one: the loop leaves it to the next step
            cluster.time.advance(self.random.uniform(0.0, 0.1))
        self.outcomes = tuple(outcomes)
        # One healing may end and another begin in the same step.
        if self.status.healing is None or self.status.healings[-1:] != self.last_healed:
            self.failovers.clear()
        self.last_healed = self.status.healings[-1:]
        self._check_always()
        self._check_that_the_channel_stays(before)
        idle = 0.0 if decision.actions else self.random.uniform(0.0, self.pace)
        cluster.time.advance(decision.requeue_after.total_seconds() + self.random.uniform(0.05, 0.4) + idle)

    def _look(self, now: datetime) -> tuple[Observation, frozenset[int]]:
        """Return the observation, and which brokers were down or out of sync when its cluster part was true."""
        cluster = self.cluster
        self.looked_at = cluster.time.now
        self.layout.look(self)
        cluster.rendering = self.settings.rendering(self)
        cluster.judged = f"{self.settings.rendered(self.status)} {self.spec.controllers.heap_options}"
        observation = cluster.observe(self.status, now, self.canary_committed, self.outcomes)
        sick = frozenset(
            i for i in cluster.kafka.nodes if i not in cluster.kafka.in_sync or not cluster.kafka.brokers[i].up
        )
        fresh = (cluster.time.now, observation)
        if self.former_look is not None and self._happens("stale") and cluster.time.now - self.former_look[0] < 1.5:
            old = self.former_look[1]
            if old.cluster is not NOT_SEEN:
                # Metadata of a broker may be a second old; what it said then is what can be judged by.
                observation = replace(observation, cluster=old.cluster)
                sick &= self.former_sick
        if self.faults.unseen and cluster.time.now < self.faults_end:
            parts = (
                "stateful_sets",
                "controllers",
                "zookeeper",
                "quorum",
                "cluster",
                "cluster_by_broker",
                "canary_by_broker",
                "redundancy",
                "run",
                "registered_controllers",
                "controller_by_broker",
            )
            lost = {p: NOT_SEEN for p in parts if self.random.random() < self.faults.unseen}
            if self.layout.on and self.layout.random.random() < self.faults.unseen:
                lost["assignments"] = NOT_SEEN
            if "stateful_sets" in lost:
                lost["stateful_sets"] = (NOT_SEEN,)  # type: ignore[assignment]
            if "run" in lost and observation.run is None:
                del lost["run"]
            metrics = {
                i: NOT_SEEN if self.random.random() < self.faults.unseen else m for i, m in observation.metrics.items()
            }
            if cluster.rehearsal_random.random() < self.faults.unseen:
                lost["rehearsal"] = NOT_SEEN
            if cluster.dry_starts.random.random() < self.faults.unseen:
                lost["dry_start"] = NOT_SEEN
            observation = replace(observation, metrics=metrics, **lost)  # type: ignore[arg-type]
        self.former_look, self.former_sick = fresh, sick
        return observation, sick

    def _carry_out(self, action: Action, sick: frozenset[int]) -> ActionOutcome:
        name = type(action).__name__
        if self.outages.begins(self, action) or self._happens("failed_act"):
            return ActionOutcome(name, "connection refused")
        if self._happens("refused"):
            return ActionOutcome(name, "422 the API server's rules forbid it", refused=True)
        if isinstance(action, RestartPod) and action.ready and self._happens("eviction_blocked"):
            return ActionOutcome(name, "429 a PodDisruptionBudget forbids it now")
        self._check_act(action, sick)
        self.cluster.rendering = self.settings.rendering(self)
        error = self.cluster.act(action, self.status)
        if not error and self._happens("lost_reply"):
            error = "no answer in time"
        if not error and isinstance(action, WriteCanary):
            self.canary_committed = action.value
        return ActionOutcome(name, error)

    def _restart_operator(self) -> None:
        """Let the operator die and another one begin, with nothing but what the API server has."""
        self.canary_committed, self.outcomes = None, ()
        self.status = MigrationStatus.model_validate_json(self.status.model_dump_json(by_alias=True, exclude_none=True))
        self.cluster.time.advance(self.random.choice([0.5, 5.0, 60.0]))

    def _create_again(self) -> None:
        """Let the user delete the resource at rest and create one of the same name: nothing of the earlier one may be used."""
        self.coverage.faults["same_name"] += 1
        self.identity = Identity(
            "kafka", "demo", f"{(int(self.identity.uid[:8], 16) + NEXT_UID) & 0xFFFFFFFF:08x}-uid", 1
        )
        self.endings.begin_anew()
        self.cluster.identity = self.identity
        self.status = MigrationStatus()
        self.canary_committed, self.outcomes, self.former_look = None, (), None
        self.entered_finalizing = False
        self.failovers.clear()
        self.down_by_us.clear()
        self.last_healed = ()

    # --------------------------------------------------------------------------------------------- faults

    def _happens(self, name: str) -> bool:
        chance = self.chances.get(name, 0.0)
        if chance and self.cluster.time.now < self.faults_end and self.random.random() < chance:
            self.coverage.faults[name] += 1
            return True
        return False

    def _lone_topics(self, random: Random) -> None:
        """Let clients make a topic of one replica, and give it more replicas after a while."""
        cluster, now = self.cluster, self.cluster.time.now
        if cluster.lone_topic is None:
            if self.status.phase is not Phase.PREFLIGHT and random.random() < LONE_TOPIC_CHANCE:
                cluster.lone_topic = random.choice(cluster.kafka.nodes), now
                self.lone_until = now + random.uniform(2 * LONE_TOPIC_SEEN_SECONDS, 300.0)
                self.coverage.faults["lone_topic"] += 1
        elif now >= self.lone_until:
            cluster.lone_topic = None

    def _lose_heartbeats(self, random: Random) -> None:
        kafka = self.cluster.kafka
        if kafka.active is not None and random.random() < HEARTBEATS_LOST_CHANCE:
            kafka.lose_heartbeats(random.choice(kafka.nodes), random.uniform(12.0, 60.0))
            self.coverage.faults["heartbeats_lost"] += bool(kafka.heartbeats_lost)

    def _move_the_tag(self) -> None:
        """Let the tag of the brokers' image name another one after the first restart began; the user accepts that some time later."""
        images, now = self.cluster.images, self.cluster.time.now
        if self.status.phase in (Phase.TAKING_OVER, Phase.ROLLING_BROKERS) and images.move(now):
            self.coverage.faults["tag_moved"] += 1
        if images.accepted(now):
            self._accept_other_image()

    @property
    def _other_image_accepted(self) -> bool:
        return any(a.code == Code.DRY_START_OTHER_IMAGE for a in self.spec.preflight.accepted)

    def _accept_other_image(self) -> None:
        if not self._other_image_accepted:
            self.accept(AcceptedFinding(code=str(Code.DRY_START_OTHER_IMAGE)))

    def accept(self, more: AcceptedFinding) -> None:
        """Let the user accept one more finding."""
        accepted = (*self.spec.preflight.accepted, more)
        self._edit(preflight=self.spec.preflight.model_copy(update={"accepted": accepted}))

    def _check_image(self, node: int) -> None:
        """Fail if a broker that serves is stopped while another has come back with an image that no copy was started with."""
        if self.status.phase is Phase.ROLLING_BACK or self._other_image_accepted:
            return
        pods = [p for w in self.cluster.broker_sets for p in w.pods.values()]
        seen = [p for p in pods if p.ready_since is not None and p.ready_since < self.looked_at]
        # A broker that is taken back to migration mode spreads nothing: it has this image already.
        seen = [p for p in seen if p.node != node]
        before = self.cluster.images.before
        other = [p.node for p in seen if p.image not in (before.get(p.node, p.image), self.cluster.expected_image(p))]
        if other:
            self._break(f"broker {node} is stopped although broker {other[0]} came back with another image")

    def _misfortune(self) -> None:
        cluster, random = self.cluster, self.random
        if self.lone_random is not None:
            self._lone_topics(self.lone_random)
        if self.fenced_random is not None:
            self._lose_heartbeats(self.fenced_random)
        if self._happens("broker_crash"):
            node = random.choice(cluster.kafka.nodes)
            cluster.crash(cluster.set_of(node), node)
        if self._happens("broker_hung"):
            cluster.kafka.hang(cluster.layout.strike(random, cluster.time.now), random.uniform(3.0, 60.0))
        if self._happens("stale_metadata"):
            cluster.kafka.tell_nothing(random.choice(cluster.kafka.nodes), random.uniform(5.0, 60.0))
        if self._happens("broker_evicted"):
            node = cluster.layout.strike(random, cluster.time.now)
            cluster.delete_pod(cluster.set_of(node), node)
        if cluster.controllers is not None:
            if self._happens("controller_crash"):
                cluster.crash(cluster.controllers, random.choice(CONTROLLERS))
            if self._happens("controller_evicted"):
                cluster.delete_pod(cluster.controllers, random.choice(CONTROLLERS))
        if self._happens("zookeeper_down"):
            cluster.kafka.zookeeper_down_until = cluster.time.now + random.uniform(2.0, 60.0)
        if self._happens("zookeeper_edited"):
            cluster.kafka.edited = True
        if cluster.kafka.mirroring() and self._happens("lost_write"):
            cluster.kafka.lost_write = True
        if not self.guarded:
            for brokers in cluster.broker_sets:
                if brokers.configuration and brokers.lock and self._happens("taken_back"):
                    self._take_back(brokers)
        if cluster.channel is not None and self.faults != Faults() and cluster.channel.edit(self.status):
            self.coverage.faults["channel_changed"] += 1
        if self._happens("time_jump"):
            cluster.time.advance(random.uniform(60.0, 4000.0))
        if self._happens("clock_skew"):
            self.skew = random.choice([0.0, random.uniform(-SKEW_SECONDS, SKEW_SECONDS)])
        if self._happens("pause"):
            self._edit(paused=not self.spec.paused)
        if self._happens("controllers_edited"):
            self._edit_controllers(random.choice(["one", "two", "three", "broken"]))
        if self._happens("retarget"):
            self._edit(target=random.choice(self._targets()))
        if not self.deleted and self._happens("deleted"):
            self.deleted = True
            self.identity = replace(self.identity, deleting=True)
            self.cluster.identity = self.identity
            self._edit(on_deletion=random.choice(list(OnDeletion)))
        if self._happens("lease_lost"):
            name = random.choice(cluster.broker_sets).name
            cluster.leases.pop(name, None)
            cluster.leases_taken[name] = cluster.time.now + random.uniform(5.0, 60.0)

    def _targets(self) -> list[Target]:
        """Return what a user may ask for by mistake: the rules of the CRD refuse the rest."""
        if self.status.phase.row.on_kafka4 or self.to_kafka4.going:
            return [self.spec.target]
        return [t for t in Target if t is not Target.KAFKA4 and (t is not Target.BRIDGE_RELEASE or self.leg.on)]

    def _take_back(self, brokers: Workload) -> None:
        """Let somebody's apply restore the user's values: some of them, or the whole manifest, with or without the strategy."""
        match self.random.randrange(3):
            case 0:
                brokers.drift = True
            case 1:
                brokers.drift, brokers.strategy = True, "RollingUpdate"
            case _:
                brokers.configuration, brokers.drift, brokers.strategy = "", False, "RollingUpdate"
        self.cluster.change_template(brokers)

    def _edit(self, **changes: object) -> None:
        self.spec = self.spec.model_copy(update=changes)
        self.identity = replace(self.identity, generation=self.identity.generation + 1)
        self.cluster.identity = self.identity

    def _edit_controllers(self, heap_options: str) -> None:
        """Change ``spec.controllers``; with ``broken`` no controller starts."""
        self._edit(controllers=self.spec.controllers.model_copy(update={"heap_options": heap_options}))

    def _calm_down(self) -> None:
        """End every fault, and let the user ask for something that can be reached."""
        self.cluster.trouble, self.skew, self.cluster.kafka.deaf = Trouble(), 0.0, False
        self.cluster.lone_topic = None
        self.stores.calm_down(self)
        if self.cluster.images.moved:
            self._accept_other_image()
        self.cluster.kafka.edited, self.cluster.kafka.stuck_chance = False, 0.0  # whoever edited ZooKeeper repairs it
        self._edit(paused=False, target=self._reachable_target())
        if self.spec.controllers.heap_options == "broken":
            self._edit_controllers("mended")

    def _lend_a_hand(self) -> None:
        """Do what only a person can: where healing is not allowed, or was given up, restart the active controller."""
        kafka, controllers = self.cluster.kafka, self.cluster.controllers
        self.stores.lend_a_hand(self)
        self.settings.mend(self)
        self.templates.mend(self)
        self.uids.accept(self)
        self.certificates.lend_a_hand(self)
        self.walls.mend(self)
        self.endings.accept(self)
        self.leg.say(self)
        if self.cluster.channel is not None:
            self.cluster.channel.mend(self.status)
        self._correct_settings()
        if stalled_for(self.status, Reason.DEADLINE_EXCEEDED):
            for node in sorted(self.cluster.kafka.unregistering):  # it came back without us and never registered
                self._help_to_register(node)
        if stalled_for(self.status, Reason.INCONCLUSIVE) and self.status.verifications:
            last = self.status.verifications[-1]
            if last.profile is Profile.COPY and last.finished_at is not None:
                # The tree was not seen in time; whoever has compared it by hand takes the copy upon them.
                self._edit(verification=self.spec.verification.model_copy(update={"accepted_copy": last.run_id}))
        if stalled_for(self.status, Reason.CONTROLLERS_CHANGE_FAILED):
            self._edit_controllers(f"mended-{self.identity.generation}")
        never = self.spec.verification.healing is Healing.NEVER
        stalled = condition(self.status.conditions, ConditionType.STALLED)
        asked = stalled is not None and stalled.status == "True" and stalled.reason == Reason.HEALING
        history = self.status.zookeeper_history
        asked |= (
            history is not None and history.contradiction is not None and stalled_for(self.status, Reason.INCONSISTENT)
        )
        given_up = self.status.healing is not None and self.status.healing.given_up_at is not None
        if controllers is None or kafka.active is None or not (never or given_up or asked):
            return
        if never or self.creation_failed:
            kafka.create_states()
        if kafka.state is ZkMigrationState.MIGRATION and (kafka.state_differs() or kafka.mirror_live_from is None):
            self.cluster.crash(controllers, kafka.active)

    def _help_to_register(self, node: int) -> None:
        """Restart a broker that never registered, unless the operator restarts it once more by itself."""
        operation = self.status.operation
        if operation is None or operation.repeated or operation.node_id != node:
            self.cluster.crash(self.cluster.set_of(node), node)

    def _correct_settings(self) -> None:
        """Let the user delete the dynamic setting that the message names."""
        comparison, undo = self.status.broker_comparison, self.status.broker_undo
        held = undo is not None and undo.finished_at is not None
        stands = comparison is not None and bool(comparison.differing) and undo is None
        if self.cluster.becoming.refusing and (held or stands) and stalled_for(self.status, Reason.FINDINGS):
            self.coverage.faults["settings_refused"] += 1
            self.cluster.becoming.correct()

    def _check_settings(self, node: int) -> None:
        """Fail if a broker restarts in KRaft mode while another runs there without the settings that it had."""
        fallen = self.cluster.becoming.fallen - {node}
        template = BrokerMode.of(self.cluster.set_of(node).configuration)
        if template is BrokerMode.KRAFT and self.status.phase is not Phase.ROLLING_BACK and fallen:
            self._break(f"broker {node} restarts in KRaft mode although broker {min(fallen)} is not what it was")

    def _reachable_target(self) -> Target:
        phase = self.status.phase
        if (wanted := self.to_kafka4.target(self)) is not None:
            return wanted
        if not phase.reversible:
            return Target.KRAFT
        if self.deleted:
            self._edit(on_deletion=OnDeletion.FINISH)
            return Target.KRAFT if phase is Phase.PREFLIGHT else self.random.choice([Target.KRAFT, Target.ZOOKEEPER])
        wish = self.random.choice(
            [Target.KRAFT] * 5 + [Target.ZOOKEEPER] * 3 + [Target.KRAFT_BROKERS, Target.DUAL_WRITE]
        )
        if wish is Target.ZOOKEEPER and phase is Phase.PREFLIGHT:
            return Target.KRAFT
        if phase in FORWARD and wish is not Target.ZOOKEEPER and FORWARD.index(phase) > FORWARD.index(LAST_PHASE[wish]):
            return Target.KRAFT
        return wish

    def _at_rest(self) -> bool:
        ready = condition(self.status.conditions, ConditionType.READY)
        return (
            ready is not None
            and ready.status == "True"
            and self.status.observed_generation == self.identity.generation
            and self.status.phase is LAST_PHASE[self.spec.target]
            and not self.cluster.kafka.under_replicated()
        )

    # ------------------------------------------------------------------------------------------- promises

    def _break(self, words: str) -> None:
        raise BrokenPromiseError(words)

    def _oldest(self, max_age: float) -> float:
        """Return how old a verdict may really be that is not too old by the operator's clock: a decision takes its time, and the clock may jump."""
        return max_age + 5 + 2 * (SKEW_SECONDS if self.faults.clock_skew else 90)

    def _passed_at(self, status: MigrationStatus, profile: Profile, gate: Phase) -> list[float]:
        """Return when runs that really passed, and that we released, read the data."""
        records: tuple[VerificationStatus, ...] = status.verifications
        runs = [self.cluster.runs.get(v.run_id) for v in records if v.profile is profile and v.gate is gate]
        return [
            r.read_at
            for r in runs
            if r is not None and r.read_at is not None and r.verdict is Verdict.CONSISTENT and not r.misaddressed
        ]

    def _check_transition(self, before: MigrationStatus, decision: Decision) -> None:
        after = decision.status
        if after.phase is before.phase:
            return
        now = self.cluster.time.now
        if after.phase is Phase.TAKING_OVER:
            self.templates.note_first_restart()
            self.cluster.images.before = {p.node: p.image for w in self.cluster.broker_sets for p in w.pods.values()}
        self._check_channel(after)
        if words := self.settings.trouble_entering(self, after.phase) or self.walls.trouble_entering(self, after.phase):
            self._break(words)
        if words := self.leg.trouble_entering(after.phase):
            self._break(words)
        if words := self._trouble_around_kafka4(before, after):
            self._break(words)
        # A way back begins beside a restart in progress, which may never end; the pause holds within it.
        if self.spec.paused and after.phase not in (Phase.ROLLING_BACK, Phase.LEAVING_KAFKA4):
            self._break(f"{before.phase} was left for {after.phase} although paused")
        fresh = self._oldest(MAX_AGE_SECONDS)
        needs = {
            Phase.TAKING_OVER: Profile.ZOOKEEPER,
            Phase.ROLLING_BROKERS: Profile.DUAL_WRITE,
            Phase.AWAITING_FINALIZATION: Profile.DUAL_WRITE,
            Phase.COMPLETED: Profile.REPLICAS,
            Phase.KAFKA4_CONTROLLERS: Profile.REPLICAS,
            Phase.KAFKA4_BROKERS: Profile.REPLICAS,
            Phase.KAFKA4: Profile.REPLICAS,
        }
        if after.phase in needs:
            read = self._passed_at(after, needs[after.phase], after.phase)
            if not any(now - at <= fresh for at in read):
                self._break(f"{after.phase} entered without a fresh passed verdict")
        if before.phase is Phase.PREFLIGHT and self.cluster.issued is not self.spec.controllers.listener.generate:
            self._break("Preflight was left without the certificates that the operator issues")
        # Kafka copies no topic without an id.
        nameless = after.broker_upgrade is not None and after.broker_upgrade.lifts_alone
        first = before.phase is Phase.PREFLIGHT and not nameless
        if self.spec.rehearsal.enabled and (first or after.phase is Phase.TAKING_OVER):
            ended = [
                r.ended_at
                for r in self.cluster.rehearsals.values()
                if r.ended_at is not None and r.fenced and r.verdict is r.of_brokers is RehearsalVerdict.WORKS
            ]
            if not any(now - at <= self._oldest(REHEARSAL_MAX_AGE_SECONDS) for at in ended):
                self._break(f"{after.phase} entered without a fresh rehearsal that works")
        word = self.spec.verification.accepted_copy
        accepted = any(
            v.run_id == word and v.finished_at is not None and v.verdict is not Verdict.INCONSISTENT
            for v in after.verifications
        )
        passed = self._passed_at(after, Profile.COPY, Phase.DUAL_WRITE)
        if after.phase is Phase.DUAL_WRITE and not passed and not accepted:
            self._break("DualWrite entered although no run has found that the copy lost nothing")
        if after.phase is Phase.DUAL_WRITE and self.cluster.kafka.deaf:
            self._break("TakingOver was left although the controllers reach no broker")
        if after.phase is Phase.FINALIZING:
            if self.spec.target is not Target.KRAFT:
                self._break(f"Finalizing entered while spec.target is {self.spec.target}")
            read = self._passed_at(after, Profile.DUAL_WRITE, Phase.AWAITING_FINALIZATION)
            if not any(now - at <= fresh for at in read):
                self._break("Finalizing entered without a fresh passed verdict")
            self.entered_finalizing = True

    def _check_that_the_channel_stays(self, before: MigrationStatus) -> None:
        kept = before.phase not in (Phase.PREFLIGHT, Phase.ROLLED_BACK)
        if kept and str(before.channel) != str(self.status.channel):
            self._break(f"{before.phase}: the channel {before.channel} became {self.status.channel}")

    def _check_channel(self, after: MigrationStatus) -> None:
        """With ``configStyle: Auto`` no broker restarts by a channel that does not reach it."""
        opened = self.cluster.channel
        if opened is not None and after.phase is Phase.TAKING_OVER and str(after.channel) != opened.reaching:
            self._break(
                f"TakingOver entered with {after.channel}, and {opened.reaching or 'no channel'} reaches the brokers"
            )

    def _trouble_around_kafka4(self, before: MigrationStatus, after: MigrationStatus) -> str:
        """Return which promise a transition on the way to Kafka 4, or back, breaks."""
        if after.phase is Phase.KAFKA4_CONTROLLERS and self.spec.target is not Target.KAFKA4:
            return "the way to Kafka 4 begins, and nobody wants there"
        if after.phase is Phase.LEAVING_KAFKA4 and self.spec.target is not Target.KRAFT:
            return "Kafka 4 is left, and nobody wants back"
        if after.phase is Phase.LEAVING_KAFKA4 and self.to_kafka4.levels != {FEATURE: 21}:
            return "Kafka 4 is left after a feature was raised"
        if before.phase is Phase.LEAVING_KAFKA4 and self.to_kafka4.nodes:
            return f"the way back ends while nodes {sorted(self.to_kafka4.nodes)} run Kafka 4"
        return ""

    def _trouble_of(self, action: Action) -> str:
        """Return which promise an action breaks in the worlds that have their own."""
        return (
            self.stores.trouble_of(self, action)
            or self.settings.trouble_of(self, action)
            or ("" if self.frozen.is_waking else self.uids.trouble_of(self, action))
            or ("" if self.frozen.is_waking else self.templates.trouble_of(self, action))
            or ("" if self.frozen.is_waking else self.walls.trouble_of(self, action))
            or ("" if self.frozen.is_waking else self.endings.trouble_of(self, action))
            or self.certificates.trouble_of(self, action)
            or self.cluster.slow_starts.trouble_of(action, self.looked_at)
            or ("" if self.frozen.is_waking else self.layout.trouble_of(self, action))
        )

    def _held_down_besides(self, node: int) -> list[int]:
        """Return the other brokers that we hold down; none where the user gave the word to do without controllers: there all restart at once."""
        given_up = self.status.lost_quorum is not None and self.spec.rollback.accept_loss
        if given_up and self.status.phase is Phase.ROLLING_BACK:
            return []
        return sorted(self.down_by_us.keys() - {node} - self.layout.allowed_down(self))

    def _check_act(self, action: Action, sick: frozenset[int]) -> None:
        kafka = self.cluster.kafka
        if words := self._trouble_of(action) or self._cleans_early(action):
            self._break(words)
        # A rollback that never touched a StatefulSet needs no Lease: it only takes its own controllers away.
        own = isinstance(action, StopControllers) and not self.status.changed_fields
        guarded = isinstance(action, RestartPod | ConfigureBrokers | RestoreStatefulSet | StopControllers) and not own
        if guarded and any(until > self.looked_at for until in self.cluster.leases_taken.values()):
            self._break(f"{type(action).__name__} while another operator holds a Lease")
        match action:
            case ApplyControllers() if self._volumes_of_another():
                self._break("the controllers start on the volumes of an earlier resource of the same name")
            case ApplyControllers(ControllerMode.FINAL) if not self.entered_finalizing:
                self._break("controllers lose the migration flag before Finalizing")
            case RestartPod(_, uid, node) if node not in CONTROLLERS:
                pod = self.cluster.set_of(node).pods.get(node)
                if pod is None or pod.uid != uid or pod.deleting:
                    return  # the precondition makes it harmless
                # One that is down itself takes nothing with it: its restart can only help.
                down = node in sick or not kafka.brokers[node].up
                if not down and (others := sorted(sick - {node} - self.layout.allowed_down(self))):
                    self._break(f"broker {node} is stopped while {others} are down or out of sync")
                holder, since = self.cluster.lone_topic or (None, 0.0)
                if not down and node == holder and self.looked_at - since > LONE_TOPIC_SEEN_SECONDS:
                    self._break(f"broker {node} is stopped, which has the only replica of a topic")
                if not down:
                    self._check_image(node)
                self._forget_returned()
                if kafka.brokers[node].up and (others := self._held_down_besides(node)):
                    self._break(f"broker {node} is stopped while we hold {others} down")
                mode = kafka.brokers[node].mode
                if (
                    self.status.phase is Phase.ROLLING_BACK
                    and mode is BrokerMode.MIGRATION
                    and not self.cluster.set_of(node).configuration
                ):
                    view = kafka.views.get(node)
                    if (
                        kafka.brokers[node].up
                        and view != kafka.zk_controller
                        and not self.faults.broker_crash + self.faults.broker_evicted
                    ):
                        self._break(
                            f"broker {node} is stopped while it takes {view} for the controller, not {kafka.zk_controller}"
                        )
                self._check_settings(node)
                self._hold_down(node, uid, down=down)
            case RestartPod(_, uid, node):
                self._check_healing(uid)
                others_down = [i for i, c in kafka.controllers.items() if not c.up and i != node]
                pod = self.cluster.controllers.pods.get(node) if self.cluster.controllers is not None else None
                if (
                    pod is not None
                    and pod.uid == uid
                    and not pod.deleting
                    and others_down
                    and kafka.controllers[node].up  # one that is down itself takes nothing with it
                    and not self.faults.controller_crash + self.faults.controller_evicted
                    # Before they are formatted there is no quorum to protect: all of them are replaced at once.
                    and not (self.status.controllers is not None and self.status.controllers.format_allowed)
                    # Voters on different ports make no quorum, so they are isolated, and brought back, all at once.
                    and self.status.phase is not Phase.ROLLING_BACK
                    # One with a certificate that has ended refuses one that is renewed: all of them restart at once.
                    and not expired.is_under_way(self.status)
                ):
                    self._break(f"controller {node} is stopped while {others_down} are down")
            case StopControllers():
                # What the operator could know is a step old: a copy that began in between has not been written to.
                if kafka.mirrored_offset >= 0 and not self.spec.rollback.accept_loss:
                    read = self._passed_at(self.status, Profile.DUAL_WRITE, Phase.ROLLING_BACK)
                    if not any(self.cluster.time.now - at <= self._oldest(MAX_AGE_SECONDS) for at in read):
                        self._break("controllers are stopped without proof that ZooKeeper has everything")
                    if any(c.up and c.mode is not ControllerMode.ISOLATED for c in kafka.controllers.values()):
                        self._break(
                            "controllers are stopped that brokers reach: they accept changes until they are dead"
                        )
            case RemoveControllerClaim() if any(c.up for c in kafka.controllers.values()):
                self._break("the claim is removed under running controllers")
            case _:
                pass

    def _cleans_early(self, action: Action) -> str:
        """Return whether controllers are rendered without the operator's image unasked, or before the end is proven."""
        controllers = self.status.controllers
        if not isinstance(action, ApplyControllers) or controllers is None or not controllers.clean:
            return ""
        asked = self.spec.hand_over is HandOver.CLEAN and self.status.phase.row.gives_back
        if asked and self._passed_at(self.status, Profile.REPLICAS, self.status.phase):
            return ""
        return "the controllers lose the operator's image before the migration has proven its end"

    def _cleaning_trouble(self) -> str:
        """Return what is left of the operator where the user wanted nothing of it, and nobody has deleted the resource."""
        if self.spec.hand_over is not HandOver.CLEAN or self.deleted:
            return ""
        self.coverage.ends["cleaned"] += 1
        known = self.status.hand_over
        if known is None or known.guarded or known.cleaned_at is None:
            return "the guard stands although spec.handOver is Clean"
        left = set(CONTROLLERS) - self.cluster.without_agent()
        return f"controllers {sorted(left)} have the operator's image although spec.handOver is Clean" if left else ""

    def _hold_down(self, node: int, uid: str, *, down: bool) -> None:
        """Note that we stop a broker; one that is down by itself is not down by us."""
        self.down_by_us[node] = uid
        self.stopped_at.pop(node, None)
        if not down:
            self.stopped_at[node] = self.cluster.time.now

    def _check_healing(self, uid: str) -> None:
        """Check what the failover of a healing rests upon, in the world and not in status."""
        healing, allowed = self.status.healing, self.spec.verification.healing
        if healing is None or healing.failover_at is None or not self.status.phase.reversible:
            return
        if self.status.controllers is not None and self.status.controllers.change is not None:
            return  # a voter that gets another configuration
        self.failovers.add(uid)
        if len(self.failovers) > 3:
            self._break(f"{len(self.failovers)} controller failovers to heal one difference")
        if healing.run_id:
            run = self.cluster.runs[healing.run_id]
            kept = self.cluster.archives.get(healing.archive)
            if kept is None or (kept.run_id, kept.entities) != (healing.run_id, run.lost_writes + run.foreign_edits):
                self._break("a failover overwrites in ZooKeeper what has not been archived")
            if run.foreign_edits and healing.failovers == 1 and allowed is not Healing.AUTO:
                self._break("what somebody wrote to ZooKeeper is overwritten unasked")

    def _forget_returned(self) -> None:
        kafka = self.cluster.kafka
        pods = {node: pod for workload in self.cluster.broker_sets for node, pod in workload.pods.items()}
        back = [i for i, uid in self.down_by_us.items() if i in kafka.in_sync and i in pods and pods[i].uid != uid]
        for node in back:
            del self.down_by_us[node]

    def _check_always(self) -> None:
        kafka = self.cluster.kafka
        self._forget_returned()
        known = (
            self.layout.trouble(self)
            or self.stores.trouble(self)
            or self.rests.trouble(self)
            or self.cluster.dry_starts.broken
            or self.endings.wronged(self.status)
        )
        if words := known or self.leg.broken or self.to_kafka4.broken:
            self._break(words)
        if kafka.finalized_at is not None and not self.entered_finalizing:
            self._break("the quorum has finalized before anybody asked for it")
        if self.status.phase.reversible and any(
            c.mode is ControllerMode.FINAL for c in kafka.controllers.values() if c.up
        ):
            self._break(f"a controller runs without the migration flag in {self.status.phase}")
        if lacking := self.cluster.without_configuration:
            self._break(f"{sorted(lacking)} cannot start: the ConfigMap of the template was deleted")

    def _volumes_of_another(self) -> bool:
        """Whether the volumes that go with the controllers' name were an earlier resource's."""
        controllers = self.status.controllers
        return (
            controllers is not None
            and self.controllers_of.setdefault(controllers.name, self.identity.uid) != self.identity.uid
        )

    def _volumes_trouble(self) -> str:
        removed = self.spec.rollback.controller_volumes is ControllerVolumes.REMOVE
        going = self.cluster.controllers is not None and self.cluster.controllers.deleting  # and its volumes with it
        if self.cluster.volumes is None or removed != bool(self.cluster.volumes) or (removed and going):
            return ""
        return f"the controllers' volumes were {'kept' if removed else 'removed'} unasked"

    def _check_end(self) -> None:
        """Check what must be true at rest, in the world and not in status."""
        cluster, kafka = self.cluster, self.cluster.kafka
        modes = {p.mode for p in kafka.brokers.values()}
        match self.status.phase:
            case Phase.COMPLETED | Phase.KAFKA4:
                wrong = [
                    "brokers are not all on KRaft" if modes != {BrokerMode.KRAFT} else "",
                    "controllers keep the flag"
                    if {c.mode for c in kafka.controllers.values()} != {ControllerMode.FINAL}
                    else "",
                    "the StatefulSet is locked"
                    if any(w.lock or w.strategy != "RollingUpdate" for w in cluster.broker_sets)
                    else "",
                    "there is no final manifest" if not cluster.final_manifest else "",
                    "the canary is still in the log" if kafka.log_canary is not None else "",
                    "blank volumes may be formatted" if cluster.format_allowed else "",
                    self._cleaning_trouble(),
                ]
            case Phase.ROLLED_BACK:
                wrong = [
                    "brokers are not all on ZooKeeper" if modes != {BrokerMode.ZOOKEEPER} else "",
                    # A StatefulSet that is being deleted and has no pods makes none any more.
                    "there are controllers"
                    if (left := cluster.controllers) is not None
                    and not (left.deleting and not left.pods)
                    and self.status.controllers is not None
                    else "",
                    "/controller or /migration is ours" if kafka.claim_epoch >= 0 or kafka.migration_znode else "",
                    "the StatefulSet is not the user's"
                    if any(w.lock or w.configuration or w.strategy != "RollingUpdate" for w in cluster.broker_sets)
                    else "",
                    "the canary is still in ZooKeeper" if kafka.zk_canary is not None else "",
                    self._volumes_trouble(),
                ]
            case _:
                allowed = cluster.format_allowed and cluster.controllers is not None
                old = [
                    p.name
                    for p in (cluster.controllers.pods.values() if cluster.controllers is not None else ())
                    if not p.configuration.endswith(f"-{tuned_controllers(self.spec, self.status).heap_options}")
                ]
                wrong = [
                    "blank volumes may be formatted" if allowed else "",
                    f"{', '.join(old)} does not run what spec.controllers says" if old else "",
                ]
        wrong += [self.leg.trouble_at_rest(self.status.phase), self.to_kafka4.trouble_at_rest(self)]
        unmounted = cluster.configurations.keys() - cluster.mounted()
        if unmounted and cluster.controllers is not None:
            wrong.append(f"configurations of the controllers are left that nothing mounts: {sorted(unmounted)}")
        if words := [w for w in wrong if w]:
            self._break(f"at rest in {self.status.phase}: {'; '.join(words)}")


NOT_SEEN = Unobserved("somebody", "no answer in time")
