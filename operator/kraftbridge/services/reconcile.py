"""The loop: observe → decide → publish → act.

Publishing comes before acting.
The status, written with a resourceVersion test, records every intent.
If it cannot be written because of a conflict, no action is executed, and the next step starts from the current state.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from pydantic import ValidationError

from kraftbridge.config import Settings
from kraftbridge.constants import (
    ANNOTATION_LOCK,
    ANNOTATION_RECORD_STEP,
    ANNOTATION_REHEARSE,
    API_VERSION,
    DEFAULT_CLUSTER_DOMAIN,
    KIND,
)
from kraftbridge.exceptions import (
    ActionError,
    ActionRefusedError,
    ConflictError,
    InvalidSpecError,
    MigrationError,
    TooLargeError,
)
from kraftbridge.models import newer
from kraftbridge.models.conditions import ConditionType, Reason, holds, initial_conditions, with_condition
from kraftbridge.models.decision import Decision, Event, EventReason, EventType
from kraftbridge.models.objects import entries, section
from kraftbridge.models.observation import NOT_NEEDED, ActionOutcome, Observation, Unobserved
from kraftbridge.models.phase import ControllerMode, Part, Phase
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import MigrationStatus, with_channel
from kraftbridge.phases.basis import basis_of
from kraftbridge.phases.draft import Identity, Migration
from kraftbridge.phases.machine import decide
from kraftbridge.phases.recorded_step import recorded
from kraftbridge.services import metrics
from kraftbridge.services.act import removal, steps
from kraftbridge.services.act.actuator import Actuator
from kraftbridge.services.act.checked import CheckedKubernetes, tried_again
from kraftbridge.services.act.step import Step
from kraftbridge.services.clients import ClusterClients, credentials_version, open_clients
from kraftbridge.services.dry_starts import DryStarter, DryStarts
from kraftbridge.services.endpoints import Allowed, api_servers
from kraftbridge.services.facts import Facts
from kraftbridge.services.leases import Leases
from kraftbridge.services.observe.observer import Memory, Observer
from kraftbridge.services.observe.reading import ReadOnce
from kraftbridge.services.pace import (
    BASE_SECONDS,
    TROUBLE_SECONDS,
    Lane,
    Rolls,
    backoff_seconds,
    first_lane,
    idle_seconds,
    needs_place,
)
from kraftbridge.storage.ports import KubernetesPort

logger = logging.getLogger(__name__)

Object = dict[str, Any]
OpenClients = Callable[
    [KubernetesPort, str, str, MigrationSpec, str, str, int, Collection[Part], Allowed], ClusterClients
]
_CONFLICT_RETRY = timedelta(milliseconds=200)
_INVALID_RETRY = timedelta(seconds=10)
_WHILE_A_NODE_IS_AWAY = timedelta(milliseconds=240)
_AFTER_AN_ACT = timedelta(milliseconds=100)
_OBSERVERS = {Lane.HEALTHY: 24, Lane.NEW: 16, Lane.SLOW: 24}
_USUAL_FAILURES = 2
_CREDENTIALS_SECONDS = 10.0
"""Interval for comparing the versions of the credentials' Secrets."""
_PUBLISH_TRIES = 20
_TOLD_REFUSALS = 3
"""Consecutive refusals of a status before they are reported. A step that races with an edit of spec is refused once."""
_CLOSE_AFTER_SECONDS = 10.0
_QUICK_LOOKS = 2
"""Maximum number of quick repetitions of an action. After that, the usual pause applies."""


class Reconciler:
    """Runs one step of a migration at a time, at the interval that the migration needs."""

    def __init__(
        self,
        kubernetes: KubernetesPort,
        settings: Settings,
        open_connections: OpenClients = open_clients,
        dry_starts: DryStarter | None = None,
    ) -> None:
        self._kubernetes = kubernetes
        self._settings = settings
        self._pools = {
            lane: ThreadPoolExecutor(max_workers=most, thread_name_prefix=f"observe {lane}")
            for lane, most in _OBSERVERS.items()
        }
        self.rolls = Rolls(settings.max_concurrent_rolls, keeps_last=len(settings.watched_namespaces) != 1)
        """Who restarts nodes now."""
        self._leases = Leases(kubernetes, settings.instance)
        self._reads = ReadOnce(kubernetes)
        self._facts = Facts(self._reads, settings)
        self._dry_starts = dry_starts or DryStarts(settings, self._facts)
        self._observers = {
            lane: Observer(self._reads, pool, settings, self._leases, self._facts, self._dry_starts)
            for lane, pool in self._pools.items()
        }
        self._actuator = Actuator(self._facts, settings, self._leases, self._dry_starts)
        self._open_clients = open_connections
        self._clients: dict[str, tuple[str, ClusterClients]] = {}
        self._memories: dict[str, Memory] = {}
        self._lanes: dict[str, Lane] = {}
        """Of migrations that this process took no step for yet."""
        self._released = False

    def close(self) -> None:
        """End all connections."""
        for _, clients in list(self._clients.values()):  # a step may be under way
            clients.close()
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    def release_leases(self) -> None:
        """Release every Lease, so that a successor can continue at once, and execute no more actions.

        A step may still be running, because kopf does not wait for a timer's thread when it exits
        (``kopf._core.engines.daemons.stop_daemon``).
        """
        self._released = True
        self._leases.release_all()

    def due(self, uid: str, generation: int) -> bool:
        """Return whether a step is due: the pause is over, or the user changed the spec."""
        memory = self._memories.get(uid)
        return memory is None or memory.generation != generation or time.monotonic() >= memory.requeue_at

    def note(self, uid: str, phase: Phase, *, stalled: bool) -> None:
        """Record a migration's status from a watch event."""
        if uid not in self._memories:
            self._lanes[uid] = first_lane(phase, stalled=stalled)

    def lane(self, uid: str) -> Lane:
        """Return the lane of worker threads for the next step of a migration."""
        memory = self._memories.get(uid)
        return self._lanes.get(uid, Lane.NEW) if memory is None else memory.lane

    def due_in(self, uid: str) -> float:
        """Return the seconds until the next step is due."""
        memory = self._memories.get(uid)
        return 0.0 if memory is None else memory.requeue_at - time.monotonic()

    def forget(self, namespace: str, name: str, uid: str) -> None:
        """Remove the state and the metrics of a deleted migration."""
        metrics.forget(namespace, name)
        self._memories.pop(uid, None)
        self._lanes.pop(uid, None)
        self._facts.forget(uid)
        self.rolls.forget(uid)
        self._disconnect(uid)

    def _disconnect(self, uid: str) -> None:
        _, clients = self._clients.pop(uid, ("", None))
        if clients is not None:
            clients.close()

    def step(self, namespace: str, name: str) -> MigrationStatus | None:
        """Run one step of a migration.

        Returns
        -------
        MigrationStatus or None
            The published status.
            None if the migration does not exist, the resource changed in the meantime, or the Leases were released.

        Raises
        ------
        ObservationError
            The API server does not answer.
        """
        if self._released:
            return None
        migration = self._kubernetes.get(API_VERSION, KIND, namespace, name)
        if migration is None:
            return None
        metadata = migration["metadata"]
        identity = Identity(
            namespace,
            name,
            metadata["uid"],
            metadata["generation"],
            "deletionTimestamp" in metadata,
            section(metadata, "annotations").get(ANNOTATION_REHEARSE, ""),
            self._cluster_domain(section(migration, "status")),
        )
        memory = self._memories.get(identity.uid)
        if memory is None:
            memory = self._memories[identity.uid] = Memory(lane=self._lanes.get(identity.uid, Lane.NEW))
        with metrics.STEP_SECONDS.time():
            try:
                stored = newer.read_status(section(migration, "status"))
            except ValidationError as error:
                words = _not_understood(error)
                self._refuse(migration, identity, memory, Reason.NOT_UNDERSTOOD, words)
                raise MigrationError(words) from error
            try:
                wanted = newer.read_spec(migration["spec"])
                known = Migration(identity, wanted.spec, stored.status)
                clients = self._clients_of(known)
            except (ValidationError, InvalidSpecError) as error:
                body = self._refuse(migration, identity, memory, Reason.INVALID_SPEC, _words(error))
                return newer.read_status(body).status
            identity = replace(identity, unknown=wanted.unknown + stored.unknown)
            self._name_unknown(migration, identity, memory)
            return self._take(migration, replace(known, identity=identity), stored, clients, memory)

    def _take(
        self,
        resource: Object,
        migration: Migration,
        stored: newer.ReadStatus,
        clients: ClusterClients,
        memory: Memory,
    ) -> MigrationStatus | None:
        identity = migration.identity
        now = datetime.now(UTC)
        started = time.monotonic()
        with self._reads.step():
            observation = self._observers[memory.lane].observe(migration, clients, memory, now)
        observation = replace(observation, may_roll=self.rolls.free(identity.uid, identity.namespace))
        decision = decide(migration, observation, now)
        row = decision.status.phase.row
        if row.restarts_nodes and row.forward and not self.rolls.take(identity.uid, identity.namespace):
            observation = replace(observation, may_roll=False)
            decision = decide(migration, observation, now)
        if self._released or not self._publish(resource, newer.replaced(stored, decision.status), memory):
            self._note_roll(identity, migration.status)
            return None
        self._note_roll(identity, decision.status)
        seconds = time.monotonic() - started
        memory.outcomes = ()
        checked = CheckedKubernetes(self._kubernetes, self._leases, identity, basis_of(identity, decision, observation))
        decided = Migration(identity, with_channel(migration.spec, decision.status), decision.status)
        step = Step(decided, clients, memory, checked)
        memory.outcomes = self._carry_out(step, decision)
        for outcome in memory.outcomes:
            if outcome.error:
                logger.warning("%s/%s: %s: %s", identity.namespace, identity.name, outcome.action, outcome.error)
        if decision.actions:
            self._facts.forget(identity.uid)
        self._tell(resource, decision)
        asked = section(resource["metadata"], "annotations").get(ANNOTATION_RECORD_STEP, "")
        if asked and asked != memory.recorded_step:
            memory.recorded_step = asked
            self._record_step(migration, observation, now, decision, asked)
        metrics.export(identity.namespace, identity.name, decision.status)
        if memory.generation != identity.generation:
            memory.failures = 0
        memory.generation = identity.generation
        quiet = decision.status == migration.status and not decision.actions
        memory.quiet_steps = memory.quiet_steps + 1 if quiet else 0
        in_trouble = seconds > TROUBLE_SECONDS or _unreachable(observation)
        memory.failures = memory.failures + 1 if in_trouble else 0
        pause = self._pause(identity.uid, decision, memory)
        memory.requeue_at = time.monotonic() + pause
        return decision.status

    def _record_step(
        self, migration: Migration, observation: Observation, now: datetime, decision: Decision, asked: str
    ) -> None:
        """Write a step for a support archive. A failure costs the archive that one file."""
        document = recorded(migration, observation, now, decision, secrets.token_bytes(32))
        try:
            self._kubernetes.apply(steps.config_map(migration.identity, document, asked), force=True)
        except MigrationError as error:
            logger.warning("%s/%s: record of a step: %s", migration.identity.namespace, migration.identity.name, error)

    def _pause(self, uid: str, decision: Decision, memory: Memory) -> float:
        """Return the seconds until the next step is due, and choose its lane."""
        status = decision.status
        asked = idle_seconds(uid, _asked(decision, memory).total_seconds(), memory.quiet_steps, status)
        # One failed observation during a roll is normal: the observer may have asked the broker that restarts.
        failures = memory.failures
        if not status.phase.at_rest:
            failures -= _USUAL_FAILURES
        if failures <= 0:
            memory.lane = Lane.HEALTHY
            return asked
        memory.lane = Lane.SLOW
        if status.operation is not None:
            return max(asked, BASE_SECONDS)
        pause = max(asked, backoff_seconds(uid, failures, status.phase))
        if pause >= _CLOSE_AFTER_SECONDS:
            self._disconnect(uid)  # open clients would try to reconnect all the time
        return pause

    def _carry_out(self, step: Step, decision: Decision) -> tuple[ActionOutcome, ...]:
        """Execute the actions in order. A failed action ends the step, because later actions may depend on it."""
        outcomes: list[ActionOutcome] = []
        for action in decision.actions:
            if self._released:
                break
            outcomes.append(self._actuator.carry_out(step, action))
            if outcomes[-1].error:
                break
        return tuple(outcomes)

    def _cluster_domain(self, status: Mapping[str, Any]) -> str:
        """Return the domain in the controllers' host names: the present one in Preflight, later the recorded one."""
        if status.get("phase", Phase.PREFLIGHT) == Phase.PREFLIGHT:
            return self._settings.domain
        return str(status.get("clusterDomain") or DEFAULT_CLUSTER_DOMAIN)

    def _clients_of(self, migration: Migration) -> ClusterClients:
        identity = migration.identity
        spec = migration.spec
        status = migration.status
        controllers = migration.controllers
        mode = ControllerMode.MIGRATION if status.controllers is None else status.controllers.mode
        port = mode.port
        domain = identity.cluster_domain
        listener = spec.controllers.listener
        needs = status.phase.row.needs
        zookeeper = spec.zookeeper if Part.ZOOKEEPER in needs else None
        key = repr((controllers, domain, zookeeper, spec.brokers, listener, spec.controllers.node_ids, port))
        connected_key, connected = self._clients.get(identity.uid, ("", None))
        memory = self._memories[identity.uid]
        same_use = connected_key.startswith(f"{key} ")
        if not same_use or time.monotonic() - memory.credentials_read_at >= _CREDENTIALS_SECONDS:
            version = credentials_version(self._kubernetes, identity.namespace, controllers, spec, needs)
            memory.credentials_read_at = time.monotonic()
            if version is not None or connected is None:
                memory.credentials = version
        key = f"{key} {memory.credentials}"
        if connected is not None:
            if connected_key == key:
                return connected
            words = "%s/%s: the spec or the credentials changed: reopening the connections"
            logger.info(words, identity.namespace, identity.name)
            connected.close()
        clients = self._open_clients(
            self._kubernetes,
            identity.namespace,
            controllers,
            spec,
            self._settings.domain,
            domain,
            port,
            needs,
            Allowed(self._settings.allowed_networks, api_servers(self._kubernetes)),
        )
        self._clients[identity.uid] = (key, clients)
        return clients

    def _publish(self, migration: Object, body: Object, memory: Memory) -> bool:
        if body == migration.get("status"):
            return True
        metadata = migration["metadata"]
        try:
            self._replace_status(migration, body)
        except ConflictError as error:
            logger.info("%s/%s: status was not written: %s", metadata["namespace"], metadata["name"], error)
            memory.requeue_at = time.monotonic() + _CONFLICT_RETRY.total_seconds()
            return False
        except ActionRefusedError as error:
            self._refused(migration, memory, error)
            return False
        memory.refusals = 0
        return True

    def _replace_status(self, migration: Object, body: Object) -> None:
        """Replace the status that was decided from.

        A write of labels or annotations since then changes nothing of that, so it is no conflict.

        Raises
        ------
        ConflictError
            The resource is another one, or its spec or status changed.
        """
        metadata = migration["metadata"]
        place = API_VERSION, KIND, metadata["namespace"], metadata["name"]
        version = metadata["resourceVersion"]
        for _ in range(_PUBLISH_TRIES):
            try:
                self._kubernetes.replace_status(*place, body, version)
            except ConflictError:
                present = self._kubernetes.get(*place)
                if present is None or _decided_from(present) != _decided_from(migration):
                    raise
                version = present["metadata"]["resourceVersion"]
            else:
                return
        raise ConflictError(f"{KIND} {metadata['namespace']}/{metadata['name']} changes all the time")

    def _refused(self, migration: Object, memory: Memory, error: ActionRefusedError) -> None:
        """Requeue and report that the API server refuses the status.

        No action was executed, because the record comes first.

        The CRD's rules relate phase and target, so a step that races with an edit of spec is
        refused once and decided again.
        """
        metadata = migration["metadata"]
        memory.refusals += 1
        pause = _CONFLICT_RETRY.total_seconds() * 2 ** min(memory.refusals - 1, 8)
        memory.requeue_at = time.monotonic() + pause
        logger.warning("%s/%s: status was not written: %s", metadata["namespace"], metadata["name"], error)
        told_after = 1 if isinstance(error, TooLargeError) else _TOLD_REFUSALS
        if memory.refusals not in (told_after, _TOLD_REFUSALS):
            return
        words = f"The API server refuses the status of this migration, so nothing is done: {error}"[:1024]
        self.post(migration, Event(EventType.WARNING, EventReason.REFUSED, words))
        stored = section(migration, "status")
        generation = int(metadata.get("generation", 0))
        conditions = with_condition(
            newer.understood_conditions(stored) or initial_conditions(datetime.now(UTC), generation),
            ConditionType.STALLED,
            "True",
            Reason.STATUS_REFUSED,
            words,
            now=datetime.now(UTC),
            generation=generation,
        )
        small = newer.refused(stored, conditions, words, int(stored.get("observedGeneration", 0)))
        try:
            place = API_VERSION, KIND, metadata["namespace"], metadata["name"]
            self._kubernetes.replace_status(*place, small, metadata["resourceVersion"])
        except ActionError as failure:
            logger.warning("%s/%s: %s", metadata["namespace"], metadata["name"], failure)

    def _refuse(self, migration: Object, identity: Identity, memory: Memory, reason: Reason, words: str) -> Object:
        """Publish that spec or status cannot be followed, and change nothing else; return the status."""
        now = datetime.now(UTC)
        stored = section(migration, "status")
        generation = identity.generation
        conditions = newer.understood_conditions(stored) or initial_conditions(now, generation)
        for kind in (ConditionType.READY, ConditionType.RECONCILING):
            conditions = with_condition(conditions, kind, "False", reason, words, now=now, generation=generation)
        conditions = with_condition(
            conditions, ConditionType.STALLED, "True", reason, words, now=now, generation=generation
        )
        body = newer.refused(stored, conditions, words[:1024], generation)
        if self._publish(migration, body, memory):
            memory.generation = identity.generation
            memory.requeue_at = time.monotonic() + _INVALID_RETRY.total_seconds()
        return body

    def _note_roll(self, identity: Identity, status: MigrationStatus) -> None:
        wait = status.waiting.kind if status.waiting is not None else None
        rolls = needs_place(status.phase, wait, stalled=holds(status.conditions, ConditionType.STALLED))
        self.rolls.note(identity.uid, identity.namespace, needs_place=rolls)

    def _name_unknown(self, migration: Object, identity: Identity, memory: Memory) -> None:
        """Post once which fields this release ignores."""
        if identity.unknown and identity.unknown != memory.told_unknown:
            words = newer.described(identity.unknown)
            self.post(migration, Event(EventType.WARNING, EventReason.NOT_UNDERSTOOD, words))
        memory.told_unknown = identity.unknown

    def _tell(self, migration: Object, decision: Decision) -> None:
        for event in decision.events:
            logger.info("%s/%s: %s", migration["metadata"]["namespace"], migration["metadata"]["name"], event.message)
            self.post(migration, event)

    def post(self, migration: Object, event: Event) -> None:
        """Post an event. A lost event is not an error, because nothing depends on events."""
        try:
            self._kubernetes.create_event({**migration, "apiVersion": API_VERSION, "kind": KIND}, event)
        except (ActionError, MigrationError) as error:
            logger.warning("an event was not posted: %s", error)

    def nothing_is_left(self, namespace: str, name: str) -> bool:
        """Return whether the migration's objects are gone.

        The namespace is being deleted, or no StatefulSet of brokers exists.

        Waiting would only block the deletion of the namespace.
        """
        obj = self._kubernetes.get("v1", "Namespace", None, namespace)
        if obj is not None and "deletionTimestamp" in obj["metadata"]:
            return True
        migration = self._kubernetes.get(API_VERSION, KIND, namespace, name)
        names = [ref.get("name", "") for ref in entries(migration, "spec", "brokers", "statefulSets")]
        if not names:
            return False
        return all(
            self._kubernetes.get("apps/v1", "StatefulSet", namespace, stateful_set) is None for stateful_set in names
        )

    def abandon(self, namespace: str, name: str, uid: str | None = None) -> None:
        """Record the objects that an abandoned migration leaves behind, in a ConfigMap and an event.

        Parameters
        ----------
        uid
            UID of the abandoned migration: by now another one may have its name. None for the one that has it.

        Raises
        ------
        MigrationError
            The API server does not answer, or refuses the ConfigMap.
        """
        migration = self._kubernetes.get(API_VERSION, KIND, namespace, name)
        if migration is None or uid not in (None, migration["metadata"]["uid"]):
            return
        try:
            spec = newer.read_spec(migration["spec"]).spec
            status = newer.read_status(section(migration, "status")).status
        except ValidationError:
            return  # an invalid spec has changed nothing
        identity = Identity(namespace, name, migration["metadata"]["uid"], 0, deleting=True)
        config_map = removal.config_map(self._kubernetes, Migration(identity, spec, status))
        if config_map is not None:
            self._kubernetes.apply(config_map, force=True)
            name = config_map["metadata"]["name"]
            words = f"Abandoned in phase {status.phase}: ConfigMap {name} lists what is left behind"
            self.post(migration, Event(EventType.WARNING, EventReason.REFUSED, words))

    def let_go(self, namespace: str, name: str, uid: str | None = None) -> None:
        """Remove lock and Lease from a deleted migration's StatefulSets, so that their owner can change them again.

        Parameters
        ----------
        uid
            UID of the deleted migration: by now another one may have its name. None for the one that has it.
        """
        migration = self._kubernetes.get(API_VERSION, KIND, namespace, name)
        if migration is None or uid not in (None, migration["metadata"]["uid"]):
            return
        identity = Identity(namespace, name, migration["metadata"]["uid"], 0)
        for ref in entries(migration, "spec", "brokers", "statefulSets"):
            tried_again(partial(self._unlock, identity, ref.get("name", "")))
            self._leases.release(identity, ref["name"])

    def _unlock(self, identity: Identity, stateful_set: str) -> None:
        """Remove the lock of a migration, and no other, from the StatefulSet that was read."""
        place = "apps/v1", "StatefulSet", identity.namespace, stateful_set
        obj = self._kubernetes.get(*place)
        if obj is None or section(obj, "metadata", "annotations").get(ANNOTATION_LOCK) != identity.lock:
            return
        patch = {"metadata": {"annotations": {ANNOTATION_LOCK: None}}}
        self._kubernetes.merge_patch(*place, patch, resource_version=obj["metadata"]["resourceVersion"])


def _decided_from(migration: Object) -> tuple[object, ...]:
    """Return what a step reads of the resource."""
    metadata = migration["metadata"]
    return metadata["uid"], metadata["generation"], metadata.get("annotations"), migration.get("status")


def refusal_event(message: str) -> Event:
    """Return the event with the reason why a deletion waits."""
    return Event(EventType.WARNING, EventReason.REFUSED, message)


def _not_understood(error: ValidationError) -> str:
    """Return which value of the status a newer release wrote."""
    first = error.errors()[0]
    path = ".".join(str(part) for part in first["loc"])
    return (
        f"This release of the operator does not understand status.{path} ({first['msg']}), "
        "which a newer release has probably written, so it does nothing for this migration. "
        "Upgrade the operator to that release"
    )


def _words(error: ValidationError | InvalidSpecError) -> str:
    if isinstance(error, InvalidSpecError):
        return str(error)
    first = error.errors()[0]
    path = ".".join(str(p) for p in first["loc"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"spec.{path}: {first['msg']}{more}"


def _unreachable(observation: Observation) -> bool:
    """Return whether ZooKeeper or the brokers were asked and did not answer."""
    return any(
        isinstance(part, Unobserved) and part != NOT_NEEDED for part in (observation.zookeeper, observation.cluster)
    )


def _asked(decision: Decision, memory: Memory) -> timedelta:
    """Return when the next step is due: soon after a successful action, and while a node is down."""
    asked = decision.requeue_after
    if decision.status.operation is not None:
        asked = min(asked, _WHILE_A_NODE_IS_AWAY)
    acted = bool(memory.outcomes) and not any(o.error for o in memory.outcomes)
    memory.quick_looks = memory.quick_looks + 1 if acted else 0
    if acted and memory.quick_looks <= _QUICK_LOOKS:
        return min(asked, _AFTER_AN_ACT)
    return asked
