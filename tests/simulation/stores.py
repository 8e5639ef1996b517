"""Worlds in which a store is not what it was: ZooKeeper wiped, exchanged, restored from a backup or cut, and objects of ours deleted; and what must hold in them."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.kafka import CONTROLLERS

from kraftbridge.models.conditions import ConditionType, Reason, condition
from kraftbridge.models.decision import (
    Action,
    ApplyControllers,
    RemoveControllerClaim,
    RestartPod,
    StopControllers,
)
from kraftbridge.models.observation import Observation, ZooKeeperState
from kraftbridge.models.phase import Part, Phase, Target
from kraftbridge.models.status import HealingKind
from kraftbridge.phases import lost_quorum

if TYPE_CHECKING:
    from tests.simulation.run import Run

STUCK_CHANCE = 0.05
"""Of a look at an image that is not written to ZooKeeper, with which somebody restarts the active controller."""
LOST_CHANCE, DELETED_CHANCE = 0.005, 0.006
OBJECTS = ("Service/ours", "ConfigMap/ours", "NetworkPolicy/ours")
SECRET_CHANCE = 0.006
"""Of a step in which somebody deletes Secrets with the original state of a StatefulSet."""
BOTH_CHANCE = 0.4
RESTORED_CHANCE = 0.5
BACK_AFTER_SECONDS = (20.0, 200.0)
SEEN_FOR = 2
"""Readings after which a contradiction is one."""


class Lost(StrEnum):
    """What happened to ZooKeeper."""

    WIPED = "wiped ZooKeeper"
    FOREIGN = "foreign ZooKeeper"
    CUT = "ZooKeeper without /migration and /controller"
    OLDER = "older ZooKeeper"


_COPIED = frozenset({Lost.CUT, Lost.OLDER})
"""What can only happen to a ZooKeeper that the quorum has claimed."""


class Deleted(StrEnum):
    """What somebody deleted."""

    STATEFUL_SET = "deleted StatefulSet"
    ORPHANED = "deleted StatefulSet whose pods stay"
    OBJECT = "deleted object"
    CLAIM = "deleted StatefulSet and claim"
    QUORUM = "lost quorum"
    """The claims of a majority, with the StatefulSet."""


class Secrets(StrEnum):
    """Which Secrets with the original state of a StatefulSet somebody deleted."""

    ONE = "deleted original"
    BOTH = "deleted originals"


class Originals:
    """What happens to the Secrets with the originals, drawn apart like `Stores`."""

    def __init__(self, seed: int, *, troubled: bool) -> None:
        self.random = Random(f"originals of {seed}")
        self.chance = SECRET_CHANCE if troubled and self.random.random() < 0.5 else 0.0
        self.back_at = 0.0
        self.readings = 0
        """Observations of a StatefulSet whose original state is lost."""

    def happen(self, run: Run) -> str:
        """Delete Secrets, perhaps; return what was deleted."""
        if self.random.random() >= self.chance:
            return ""
        return self.delete(run, Secrets.ONE if self.random.random() >= BOTH_CHANCE else Secrets.BOTH)

    def delete(self, run: Run, kind: Secrets) -> str:
        """Delete Secrets of a StatefulSet that has some; return what was deleted."""
        held = [w for w in run.cluster.broker_sets if w.originals]
        if not held:
            return ""
        workload = self.random.choice(held)
        if kind is Secrets.ONE:
            workload.originals.discard(self.random.choice([0, 1]))
        else:
            workload.originals.clear()
            self.back_at = run.cluster.time.now + self.random.uniform(*BACK_AFTER_SECONDS)
        return kind

    def recover(self, run: Run) -> None:
        """Restore a Secret from a backup once somebody has noticed."""
        if run.cluster.time.now >= self.back_at and any(w.bereft for w in run.cluster.broker_sets):
            self.give_back(run)

    def give_back(self, run: Run) -> None:
        """Restore one Secret of each StatefulSet from a backup."""
        for workload in run.cluster.broker_sets:
            if workload.bereft:
                workload.originals.add(self.random.choice([0, 1]))

    def note_reading(self, run: Run) -> None:
        """Count a published observation of a loss."""
        self.readings = self.readings + 1 if any(w.bereft for w in run.cluster.broker_sets) else 0

    def trouble_of(self, run: Run, action: Action) -> str:
        """Return which promise an action breaks, ``""`` when none."""
        if not self._is_seen(run) or not isinstance(action, RestartPod) or action.node_id in CONTROLLERS:
            return ""
        if run.status.phase is Phase.AWAITING_FINALIZATION and run.spec.target is Target.KRAFT:
            return ""  # the user has given the way back up
        return f"broker {action.node_id} is restarted, and the original state of its StatefulSet is lost"

    def trouble(self, run: Run) -> str:
        """Return which promise the status breaks, ``""`` when none."""
        said = condition(run.status.conditions, ConditionType.ROLLBACK_POSSIBLE)
        if self._is_seen(run) and said is not None and said.status == "True":
            return f"RollbackPossible is True ({said.reason}), and an original state is lost"
        return ""

    def _is_seen(self, run: Run) -> bool:
        phase = run.status.phase
        return self.readings >= SEEN_FOR and phase.row.migrates


class Stores:
    """What happens to the stores of one run, drawn apart: the other draws of a seed stay what they were."""

    def __init__(self, seed: int, *, troubled: bool) -> None:
        self.random = Random(f"stores of {seed}")
        self.lost_chance = LOST_CHANCE if troubled and self.random.random() < 0.5 else 0.0
        self.deleted_chance = DELETED_CHANCE if troubled and self.random.random() < 0.5 else 0.0
        self.back_at = self.claims_back_at = 0.0
        self.readings = self.rewrites = 0
        """Readings of a ZooKeeper that is lost, and failovers that the user asked for."""
        self.restores = False
        """Whether the user restores the controllers from the kept copy; else the volumes come back."""
        self.originals = Originals(seed, troubled=troubled)
        self.worlds: Counter[tuple[str, str]] = Counter()
        """World and phase in which it began."""

    def recover(self, run: Run) -> None:
        """Let what was lost come back in time."""
        cluster, now = run.cluster, run.cluster.time.now
        if cluster.kafka.lost and now >= self.back_at:
            self.give_back(run)
        self._follow_restoration(run)
        if cluster.exchanged and now >= self.claims_back_at and not self._may_restore(run):
            self._restore_claims(run)
        self.originals.recover(run)

    def _may_restore(self, run: Run) -> bool:
        """Whether the user restores a lost quorum: the word is given once the operator asks for it."""
        status = run.status
        if lost_quorum.is_under_way(status):
            return True
        kept = status.kept_copy
        if not self.restores or kept is None or status.lost_quorum is None:
            return False
        if run.spec.restore_controllers_from != kept.id:
            run._edit(restore_controllers_from=kept.id)
        return run.spec.target is not Target.ZOOKEEPER or not run.spec.rollback.accept_loss

    def _follow_restoration(self, run: Run) -> None:
        """Give restored voters blank volumes of their own, and the epoch at which they begin."""
        current, cluster = run.status.restoration, run.cluster
        if current is None or current.attempt != run.status.attempt:
            return
        if current.finished_at is not None:
            self.restores = False
            return
        if cluster.controllers is None:
            return
        for node in CONTROLLERS:
            cluster.claims_of[run.status.attempt, node] = f"pvc-restored-{current.epoch}-{node}"
        cluster.exchanged.clear()
        cluster.kafka.epoch = max(cluster.kafka.epoch, current.epoch)

    def happen(self, run: Run) -> None:
        """Let stores be lost, and somebody act on what the status asks for."""
        if run.cluster.kafka.lost == Lost.OLDER and self.random.random() < 0.1:
            self.say_the_word(run)
        if self.random.random() < self.lost_chance:
            self.lose_zookeeper(run, self.random.choice(list(Lost)))
        if self.random.random() < self.deleted_chance:
            self.delete(run, self.random.choice(list(Deleted)))
        if deleted := self.originals.happen(run):
            self._count(run, deleted)

    def calm_down(self, run: Run) -> None:
        """Give everything back; an older ZooKeeper waits for the user's word where the operator asks for it."""
        self._restore_claims(run)
        self.originals.give_back(run)
        if run.cluster.kafka.lost not in ("", Lost.OLDER):
            self.give_back(run)

    def give_back(self, run: Run) -> None:
        """Let ZooKeeper have its newest data again."""
        run.cluster.kafka.lost = ""
        run.cluster.kafka.look_again()

    def say_the_word(self, run: Run) -> None:
        """Let the user ask for the failover that writes an older ZooKeeper anew."""
        known = run.status.zookeeper_history
        found = known.contradiction if known is not None else None
        if found is not None and found.rewritable and run.spec.verification.accepted_rewrite != found.id:
            self.rewrites = 0
            run._edit(verification=run.spec.verification.model_copy(update={"accepted_rewrite": found.id}))

    def lend_a_hand(self, run: Run) -> None:
        """Do what only a person can: allow the failover, and restart the controller where the stores still differ after it."""
        known, kafka = run.status.zookeeper_history, run.cluster.kafka
        if known is None or known.contradiction is None:
            return
        self.say_the_word(run)
        healing, controllers = run.status.healing, run.cluster.controllers
        late = healing is not None and healing.kind is HealingKind.OLDER_STORE and self.random.random() < STUCK_CHANCE
        if late and controllers is not None and kafka.active is not None:
            run.cluster.crash(controllers, kafka.active)
        said = condition(run.status.conditions, ConditionType.STALLED)
        differs = said is not None and said.status == "True" and said.reason is Reason.INCONSISTENT
        if differs and run.cluster.controllers is not None and kafka.active is not None:
            run.cluster.crash(run.cluster.controllers, kafka.active)

    def lose_zookeeper(self, run: Run, kind: Lost) -> bool:
        """Let ZooKeeper be another than it was; return whether it can be."""
        kafka, phase = run.cluster.kafka, run.status.phase
        if kafka.lost or Part.ZOOKEEPER not in phase.row.needs or (kind in _COPIED and not self._has_copy(run, kind)):
            return False
        kafka.lost = kind
        kafka.older_offset, kafka.lost_zxid = kafka.mirrored_offset - 100, kafka.zxid() - 1000
        self.back_at = run.cluster.time.now + self.random.uniform(*BACK_AFTER_SECONDS)
        self.readings = 0
        self._count(run, kind)
        return True

    def _has_copy(self, run: Run, kind: Lost) -> bool:
        """Whether ZooKeeper holds what can be gone from it, or be older."""
        kafka, seen = run.cluster.kafka, run.status.zookeeper_history
        if kafka.claim_epoch < 0 or not kafka.migration_znode:
            return False
        if kind is Lost.CUT:
            return True
        # Nobody can tell an older ZooKeeper that shows all that was ever read of it.
        return seen is not None and int(seen.migration_offset) > max(100, kafka.offset_in_zookeeper() - 100)

    def delete(self, run: Run, kind: Deleted) -> bool:
        """Let somebody delete objects of the controllers; return whether there are any."""
        cluster = run.cluster
        if cluster.controllers is None or cluster.controllers.deleting:
            return False
        match kind:
            case Deleted.OBJECT:
                cluster.missing.add(self.random.choice(OBJECTS))
            case Deleted.ORPHANED:
                cluster.lose_controllers(orphan=True)
            case Deleted.STATEFUL_SET:
                cluster.lose_controllers(orphan=False)
            case Deleted.CLAIM:
                cluster.exchanged[self.random.choice(CONTROLLERS)] = self.random.choice([None, "pvc-another"])
                self.claims_back_at = cluster.time.now + self.random.uniform(*BACK_AFTER_SECONDS)
                cluster.lose_controllers(orphan=False)
            case Deleted.QUORUM:
                known = run.status.controllers
                if known is None or known.format_allowed or lost_quorum.is_under_way(run.status):
                    return False
                for node in self.random.sample(CONTROLLERS, self.random.choice([2, 3])):
                    cluster.exchanged[node] = self.random.choice([None, f"pvc-another-{node}"])
                self.restores = self.random.random() < RESTORED_CHANCE
                self.claims_back_at = cluster.time.now + self.random.uniform(*BACK_AFTER_SECONDS)
                cluster.lose_controllers(orphan=False)
        self._count(run, kind)
        return True

    def delete_secrets(self, run: Run, kind: Secrets) -> bool:
        """Let somebody delete Secrets with an original state; return whether there are any."""
        deleted = self.originals.delete(run, kind)
        if deleted:
            self._count(run, deleted)
        return bool(deleted)

    def _count(self, run: Run, world: str) -> None:
        self.worlds[world, str(run.status.phase)] += 1
        run.coverage.faults[world] += 1
        run.coverage.worlds[world, str(run.status.phase)] += 1

    # ------------------------------------------------------------------------------------------- promises

    def note_reading(self, run: Run, observation: Observation) -> None:
        """Count a reading of a ZooKeeper that is lost, once its status is published."""
        self.originals.note_reading(run)
        if not run.cluster.kafka.lost:
            self.readings = 0
        elif isinstance(observation.zookeeper, ZooKeeperState):
            self.readings += 1

    def trouble_of(self, run: Run, action: Action) -> str:
        """Return which promise an action breaks, ``""`` when none."""
        if words := self.originals.trouble_of(run, action):
            return words
        cluster, rollback = run.cluster, run.status.rollback
        phase = run.status.phase
        stopped = rollback is not None and rollback.attempt == run.status.attempt and rollback.controllers_stopped_at
        if isinstance(action, RemoveControllerClaim) and not stopped:
            return "the claim is removed although nobody has stopped the controllers"
        if isinstance(action, RemoveControllerClaim) and cluster.orphans:
            return "the claim is removed although pods of the controllers are left"
        if (
            isinstance(action, ApplyControllers)
            and cluster.controllers is None
            and not action.format_allowed
            and self._has_unrecorded_claims(run)
            and not lost_quorum.is_under_way(run.status)
        ):
            return "the controllers' StatefulSet is created over claims that were not recorded"
        if run.status.lost_quorum is not None and not lost_quorum.is_under_way(run.status):
            return self._trouble_of_lost_quorum(run, action)
        if not cluster.kafka.lost or not self.readings or not phase.row.migrates:
            return ""
        match action:
            case RestartPod(_, _, node) if node not in CONTROLLERS:
                return f"broker {node} is restarted with a {cluster.kafka.lost}"
            case RestartPod(_, _, node) if phase is not Phase.ROLLING_BACK:
                known = run.status.zookeeper_history
                found = known.contradiction if known is not None else None
                asked = found is not None and run.spec.verification.accepted_rewrite == found.id
                self.rewrites += 1
                return (
                    ""
                    if asked and self.rewrites <= SEEN_FOR
                    else f"controller {node} is restarted with a {cluster.kafka.lost}"
                )
            case StopControllers():
                return f"the controllers are stopped with a {cluster.kafka.lost}"
            case RemoveControllerClaim():
                return f"the claim is removed from a {cluster.kafka.lost}"
            case _:
                return ""

    @staticmethod
    def _restore_claims(run: Run) -> None:
        """Let the claims come back that the operator has recorded, or those that were there before."""
        known = run.status.controllers
        for node_id, uid in ({} if known is None else known.volume_uids).items():
            run.cluster.claims_of[run.status.attempt, int(node_id)] = uid
        run.cluster.exchanged.clear()

    def _has_unrecorded_claims(self, run: Run) -> bool:
        """Whether a claim is gone or another one; one that was exchanged before the voters were formatted is recorded."""
        known = run.status.controllers
        recorded = {} if known is None else known.volume_uids
        return any(recorded.get(str(node)) != uid for node, uid in run.cluster.exchanged.items())

    def _trouble_of_lost_quorum(self, run: Run, action: Action) -> str:
        """Return which promise an action breaks while the quorum is lost and nobody has given the word."""
        # A rollback goes to its end, whatever target the user names meanwhile.
        goes_back = run.spec.target is Target.ZOOKEEPER or run.status.phase is Phase.ROLLING_BACK
        gives_up = goes_back and run.spec.rollback.accept_loss
        # A migration that is deleted before the takeover removes controllers on which nothing depends.
        gives_up = gives_up or (run.identity.deleting and run.cluster.kafka.claim_epoch < 0)
        if gives_up or not isinstance(action, RestartPod | ApplyControllers | StopControllers | RemoveControllerClaim):
            return ""
        return f"{type(action).__name__} although the quorum is lost and nobody has chosen a way out"

    def trouble(self, run: Run) -> str:
        """Return which promise the status breaks, ``""`` when none."""
        if words := self.originals.trouble(run):
            return words
        if lost_quorum.is_under_way(run.status) and not run.spec.restore_controllers_from:
            return "a restoration that nobody asked for"
        if self.readings < SEEN_FOR or not run.cluster.kafka.lost:
            return ""
        said = condition(run.status.conditions, ConditionType.ROLLBACK_POSSIBLE)
        if (
            run.status.phase.row.migrates
            and run.status.phase.row.forward
            and said is not None
            and said.status == "True"
        ):
            return f"RollbackPossible is True ({said.reason}) with a {run.cluster.kafka.lost}"
        if run.status.phase is Phase.FINALIZING and said is not None and said.reason is not Reason.FINALIZED:
            return "Finalizing without its reason"
        return ""
