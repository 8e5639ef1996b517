"""Runs dry starts: creates the fenced copies, waits for them, collects their reports, and deletes the copies.

A dry start takes some seconds, so it runs beside the loop.
A later observation contains its report.
If the operator stops during a dry start, the next operator repeats it:
the pods end by themselves, and the next run deletes the rest.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Protocol, TypeVar

from kraftbridge.builders import dry_start_pods as builder
from kraftbridge.builders.broker_overlays import INHERITED_OPTIONS, broker_settings, configuration
from kraftbridge.builders.dry_start_pods import CopyFacts, DryStartFacts
from kraftbridge.builders.pods import completed
from kraftbridge.config import Settings
from kraftbridge.constants import LABEL_MIGRATION, LABEL_ROLE, LABEL_RUN
from kraftbridge.copies import dry_start
from kraftbridge.copies.dry_start import agent_loaded, kafka_start, last_words, programs
from kraftbridge.exceptions import ActionError, InvalidSpecError, MigrationError, ObservationError
from kraftbridge.models.catalogue import Code
from kraftbridge.models.decision import RunDryStart
from kraftbridge.models.dry_start import (
    ContainerImage,
    CopyKey,
    CopyOutcome,
    DryStartReport,
    DryStartState,
    ListenerOfControllers,
)
from kraftbridge.models.mounted_files import FilesKind, MountedFiles
from kraftbridge.models.objects import entries, section
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.spec import BrokersSpec, MigrationSpec
from kraftbridge.models.status import MigrationStatus, controllers_name
from kraftbridge.models.survey import BrokerSetting, Unobserved
from kraftbridge.phases.draft import Identity
from kraftbridge.pods.fence import EXIT_REACHED, connects
from kraftbridge.services.clients import ClusterClients, addresses_of, bracketed, listener_data
from kraftbridge.services.facts import Facts
from kraftbridge.services.listener import CannotBeTriedError, listener_of_controllers
from kraftbridge.services.observe import workloads
from kraftbridge.storage.ports import KubernetesPort, Object, ReadPort

logger = logging.getLogger(__name__)

WAIT_SECONDS: Final = 90.0
"""Time limit for a pod of a dry start, from its creation."""
_AGAIN_SECONDS: Final = 60.0
"""How long it stands that there are no copies: the API server may have been silent for a moment."""
_OLD_SECONDS: Final = 3600.0
"""How long a report stands for another generation of the resource.
A tag may have moved, and nothing in Kubernetes tells that."""
_STUCK_SECONDS: Final = 20.0
"""Time limit for pulling an image and for creating a container."""
_POLL_SECONDS: Final = 0.5
_LOG_LINES: Final = 400
_POD: Final = ("v1", "Pod")
_Seen = TypeVar("_Seen")
_DEFAULT_LOG_DIR: Final = "/tmp/kafka-logs"  # noqa: S108 - Kafka's default of log.dir


@dataclass(slots=True)
class _Entry:
    """The dry starts of one migration."""

    running: str = ""
    report: DryStartReport | None = None
    ended_at: float = 0.0
    generation: int = 0
    """Of the resource when the dry start began."""


@dataclass(frozen=True, slots=True)
class _Source:
    """One StatefulSet that is copied."""

    stateful_set: Object
    pods: Mapping[int, Object]
    """The live pods by ordinal."""
    parts: tuple[Any, ...] = field(default=())
    """The input of the fingerprint."""


class DryStarter(Protocol):
    """Runs dry starts beside the loop."""

    def forget(self, uid: str) -> None:
        """Remove the reports of a migration."""

    def fingerprint(self, identity: Identity, spec: MigrationSpec, status: MigrationStatus) -> str:
        """Return the fingerprint of the copies that would be created now."""

    def channels(self, identity: Identity, spec: MigrationSpec) -> tuple[BrokersSpec, ...]:
        """Return ``spec.brokers`` with each channel that the pod templates may have, the most likely first."""

    def state(self, identity: Identity, fingerprint: str) -> DryStartState:
        """Return the state of a migration's dry start."""

    def start(
        self,
        identity: Identity,
        spec: MigrationSpec,
        status: MigrationStatus,
        clients: ClusterClients,
        action: RunDryStart,
    ) -> None:
        """Start a dry start in the background if none is running."""


class DryStarts:
    """Runs dry starts in the background, one at a time for each migration, and keeps the last report of each."""

    def __init__(self, kubernetes: KubernetesPort, settings: Settings, facts: Facts) -> None:
        self._kubernetes = kubernetes
        self._settings = settings
        self._facts = facts
        self._entries: dict[str, _Entry] = {}

    def forget(self, uid: str) -> None:
        """Remove the reports of a migration."""
        self._entries.pop(uid, None)

    def fingerprint(self, identity: Identity, spec: MigrationSpec, status: MigrationStatus) -> str:
        """Return the fingerprint of the copies that would be created now.

        Raises
        ------
        ObservationError
            A StatefulSet, or an object that it refers to, cannot be read.
        """
        return _fingerprint(
            spec, self._settings, self._sources(identity, spec, status), *self._listener(identity, spec, status)
        )

    def channels(self, identity: Identity, spec: MigrationSpec) -> tuple[BrokersSpec, ...]:
        """Return ``spec.brokers`` with each channel that the pod templates may have, the most likely first.

        Raises
        ------
        ObservationError
            A StatefulSet, or an object that it refers to, cannot be read.
        """
        return channels_of(self._facts.kubernetes, identity.namespace, spec)

    def state(self, identity: Identity, fingerprint: str) -> DryStartState:
        """Return the state of a migration's dry start."""
        entry = self._entries.setdefault(identity.uid, _Entry())
        age = time.monotonic() - entry.ended_at
        if entry.report is not None and entry.report.problem and age > _AGAIN_SECONDS:
            entry.report = None
        if entry.generation != identity.generation and age > _OLD_SECONDS:
            entry.report = None
        return DryStartState(fingerprint, entry.running, entry.report, age_seconds=age)

    def start(
        self,
        identity: Identity,
        spec: MigrationSpec,
        status: MigrationStatus,
        clients: ClusterClients,
        action: RunDryStart,
    ) -> None:
        """Start a dry start in the background if none is running."""
        entry = self._entries.setdefault(identity.uid, _Entry())
        if entry.running:
            return
        entry.running = action.fingerprint
        entry.generation = identity.generation

        def run() -> None:
            began = time.monotonic()
            try:
                report = self._run(identity, spec, status, clients, action)
            except MigrationError as error:
                report = DryStartReport(action.fingerprint, problem=str(error))
            except Exception as error:  # preflight must get an answer in any case
                logger.exception("%s/%s: dry start", identity.namespace, identity.name)
                report = DryStartReport(
                    action.fingerprint, problem=f"the operator failed: {type(error).__name__}: {error}"
                )
            logger.info(
                "%s/%s: dry start of %d copies took %.1f s",
                identity.namespace,
                identity.name,
                len(report.copies),
                time.monotonic() - began,
            )
            entry.report = report
            entry.ended_at = time.monotonic()
            entry.running = ""

        threading.Thread(target=run, name="dry-start", daemon=True).start()

    # ------------------------------------------------------------------------------------------------- sources

    def _sources(self, identity: Identity, spec: MigrationSpec, status: MigrationStatus) -> tuple[_Source, ...]:
        sources = []
        for ref in spec.brokers.stateful_sets:
            stateful_set = self._own_template(identity, spec, status, ref.name)
            pods = self._facts.kubernetes.list(*_POD, identity.namespace, workloads.pods_selector(stateful_set))
            by_ordinal = {p.ordinal: p.name for p in workloads.pods_of(stateful_set, pods)}
            by_name = {p["metadata"]["name"]: p for p in pods}
            live = {ordinal: by_name[name] for ordinal, name in by_ordinal.items()}
            sources.append(_Source(stateful_set, live, self._parts(identity, spec, status, stateful_set, live)))
        return tuple(sources)

    def _own_template(self, identity: Identity, spec: MigrationSpec, status: MigrationStatus, name: str) -> Object:
        """Return a StatefulSet without our overlay: in the middle of a migration, copies get the overlay of a mode."""
        present = workloads.existing(self._facts.kubernetes, identity.namespace, name)
        own = self._facts.own_template(identity, spec, status, present)
        return present if own is None else dict(own)

    def _listener(
        self, identity: Identity, spec: MigrationSpec, status: MigrationStatus
    ) -> tuple[ListenerOfControllers | None, str]:
        """Return what the copies try their credentials with, or why there is nothing."""
        try:
            name = controllers_name(identity.name, identity.uid, status.attempt)
            files = listener_data(self._facts.kubernetes, identity.namespace, name, spec)
        except InvalidSpecError:
            return None, ""  # another finding reports that the Secret is missing
        if spec.controllers.listener.secret_name is None and not files:
            return None, ""  # nothing to authenticate with
        try:
            return listener_of_controllers(spec, files), ""
        except CannotBeTriedError as error:
            return None, str(error)

    def _parts(
        self,
        identity: Identity,
        spec: MigrationSpec,
        status: MigrationStatus,
        stateful_set: Object,
        live: Mapping[int, Object],
    ) -> tuple[Any, ...]:
        template = stateful_set["spec"]["template"]
        pod = template["spec"]
        data = []
        for kind, name in dry_start.referenced(pod):
            referenced = section(self._facts.kubernetes.get("v1", kind, identity.namespace, name))
            data.append((kind, name, referenced.get("data"), referenced.get("binaryData")))
        images = {(ordinal, c["name"]): c.get("imageID") for ordinal, p in live.items() for c in _statuses(p)}
        original = self._facts.original(identity, spec, status, stateful_set)
        overlays: list[str] = []
        if original is not None:
            # The status has no cluster id before preflight passes; an id that becomes known changes no template.
            facts = replace(self._facts.brokers(identity, spec, status, original), cluster_id="")
            overlays = [configuration(spec, facts, mode) for mode in (BrokerMode.MIGRATION, BrokerMode.KRAFT)]
        name = stateful_set["metadata"]["name"]
        service = stateful_set["spec"].get("serviceName")
        # Charts put checksums of what a template refers to into annotations, and injectors of sidecars read both.
        read = [section(template, "metadata", "labels"), section(template, "metadata", "annotations")]
        # Two channels may set the same settings: a report about one says nothing about the other.
        channel = dry_start.described(spec.brokers)
        return (name, service, pod, read, data, sorted(map(str, images.items())), overlays, channel)

    # ---------------------------------------------------------------------------------------------------- runs

    def _run(
        self,
        identity: Identity,
        spec: MigrationSpec,
        status: MigrationStatus,
        clients: ClusterClients,
        action: RunDryStart,
    ) -> DryStartReport:
        sources = self._sources(identity, spec, status)
        listener, untried = self._listener(identity, spec, status)
        if _fingerprint(spec, self._settings, sources, listener, untried) != action.fingerprint:
            # It stands for what was there before, so the next step begins a dry start of what is there now.
            return DryStartReport(
                action.fingerprint, problem="the pods' template or what it refers to changed meanwhile"
            )
        closed = self._closed(identity, spec, sources)
        facts = DryStartFacts(
            namespace=identity.namespace,
            migration=identity.name,
            uid=identity.uid,
            run=secrets.token_hex(3),
            operator_image=self._settings.operator_image,
            closed=() if _unfenced_accepted(spec) else closed,
            pods=completed(spec.pods, self._facts.pod_defaults(identity.namespace, spec)),
        )
        copies = self._copies(identity, spec, status, clients, action, sources)
        trials = self._trials(identity, spec, status, action, copies)
        self._remove(facts)
        try:
            self._kubernetes.apply(builder.network_policy(facts), force=True)
            self._kubernetes.apply(
                builder.run_secret(facts, secrets.token_hex(32), [c for c, _ in (*copies, *trials)], listener),
                force=True,
            )
            reached = self._probe(facts, closed)
            if reached and facts.closed:
                return DryStartReport(action.fingerprint, reached=reached)
            outcomes = self._start_copies(facts, copies)
            lost = set(dry_start.without_overlay(outcomes))
            if not (action.choosing and lost):
                trials = [trial for trial in trials if trial[0].key.stateful_set in lost]
            tried = self._try_channels(facts, action, outcomes, trials)
            return DryStartReport(action.fingerprint, outcomes, tried, reached, untried=untried)
        finally:
            self._remove(facts)

    def _try_channels(
        self,
        facts: DryStartFacts,
        action: RunDryStart,
        present: Sequence[CopyOutcome],
        trials: Sequence[tuple[CopyFacts, Mapping[str, str]]],
    ) -> tuple[CopyOutcome, ...]:
        """Start the first pods' copies in other channels.

        To choose a channel, also start the last pods' copies in those that reach every first pod.
        """
        firsts = {copy.key.stateful_set: copy.key.ordinal for copy, _ in reversed(trials)}
        of_first = [trial for trial in trials if trial[0].key.ordinal == firsts[trial[0].key.stateful_set]]
        tried = self._start_copies(facts, of_first)
        if not action.choosing:
            return tried
        own = {outcome.key: outcome for outcome in present}
        lost = set()
        for outcome in tried:
            unchanged = own.get(replace(outcome.key, mode=BrokerMode.ZOOKEEPER, channel=""))
            if dry_start.trouble_of(unchanged, outcome):
                lost.add((outcome.key.stateful_set, outcome.key.channel))
        others = [trial for trial in trials if trial not in of_first]
        rest = [(copy, overlay) for copy, overlay in others if (copy.key.stateful_set, copy.key.channel) not in lost]
        return (*tried, *self._start_copies(facts, rest))

    def _copies(
        self,
        identity: Identity,
        spec: MigrationSpec,
        status: MigrationStatus,
        clients: ClusterClients,
        action: RunDryStart,
        sources: Sequence[_Source],
    ) -> list[tuple[CopyFacts, Mapping[str, str]]]:
        ids = dict(action.broker_ids)
        running = clients.brokers.broker_settings()
        status = status.model_copy(update={"cluster_id": action.cluster_id})
        copies: list[tuple[CopyFacts, Mapping[str, str]]] = []
        for source in sources:
            original = self._facts.original(identity, spec, status, source.stateful_set)
            name = source.stateful_set["metadata"]["name"]
            if original is None:
                raise ObservationError(
                    f"StatefulSet {name}", f"it has no container {spec.brokers.container}, or it carries an overlay"
                )
            brokers = self._facts.brokers(identity, spec, status, original)
            for key in dry_start.copies_of(name, sorted(source.pods)):
                changed, files = builder.overlaid(spec, brokers, identity.name, source.stateful_set, key.mode)
                broker_id = ids.get(key.pod)
                if broker_id is None:
                    raise ObservationError(f"pod {key.pod}", "the id of its broker is not known")
                copy = CopyFacts(
                    key=key,
                    stateful_set=changed,
                    live=source.pods[key.ordinal],
                    container=spec.brokers.container,
                    broker_id=broker_id,
                    cluster_id=action.cluster_id,
                    log_dirs=_log_dirs(running.get(broker_id, ())),
                    files=files,
                    mounted=brokers.files,
                    inherits_options=brokers.java_tool_options.startswith(INHERITED_OPTIONS),
                )
                copies.append((copy, broker_settings(spec, brokers, key.mode)))
        return copies

    def _trials(
        self,
        identity: Identity,
        spec: MigrationSpec,
        status: MigrationStatus,
        action: RunDryStart,
        copies: Sequence[tuple[CopyFacts, Mapping[str, str]]],
    ) -> list[tuple[CopyFacts, Mapping[str, str]]]:
        """Return copies of each StatefulSet's first pod with the overlay in every other channel its template may have.

        To choose a channel, return copies of the last pods, too.
        """
        trials: list[tuple[CopyFacts, Mapping[str, str]]] = []
        present = [copy for copy, _ in copies if copy.key.mode is BrokerMode.ZOOKEEPER]
        firsts = {copy.key.stateful_set: copy for copy in reversed(present)}
        chosen = list(firsts.values())
        if action.choosing:
            lasts = {copy.key.stateful_set: copy for copy in present}
            chosen += [copy for name, copy in lasts.items() if copy is not firsts[name]]
        for present_copy in chosen:
            pod = present_copy.stateful_set["spec"]["template"]["spec"]
            mounted = _referenced_files(self._kubernetes, identity.namespace, pod)
            for brokers in dry_start.other_channels(spec.brokers, pod, mounted):
                other = spec.model_copy(update={"brokers": brokers})
                stateful_set = present_copy.stateful_set
                original = self._facts.original(identity, other, status, stateful_set)
                if original is None:
                    continue
                facts = self._facts.brokers(identity, other, status, original)
                facts = replace(facts, cluster_id=present_copy.cluster_id)
                for mode in dry_start.OTHER_MODES:
                    changed, files = builder.overlaid(other, facts, identity.name, stateful_set, mode)
                    key = replace(present_copy.key, mode=mode, channel=dry_start.described(brokers))
                    copy = replace(present_copy, key=key, stateful_set=changed, files=files, mounted=facts.files)
                    trials.append((copy, broker_settings(other, facts, mode)))
        return trials

    def _closed(self, identity: Identity, spec: MigrationSpec, sources: Sequence[_Source]) -> tuple[str, ...]:
        """Return the addresses that copies must not reach.

        The operator reaches each of them; otherwise a failed connection would prove nothing.

        Raises
        ------
        ObservationError
            The operator reaches no address of ZooKeeper, or none of the brokers.
        """
        domain = self._settings.domain
        namespace = identity.namespace
        zookeeper = addresses_of(spec.zookeeper_hosts, namespace, domain)
        brokers = set(addresses_of(spec.brokers.bootstrap_servers, namespace, domain))
        bootstrap_ports = {int(address.rpartition(":")[2]) for address in brokers}
        for source in sources:
            for pod in source.pods.values():
                address = section(pod, "status").get("podIP")
                if address:
                    ports = _container_ports(pod, spec.brokers.container) | bootstrap_ports
                    brokers |= {f"{bracketed(address)}:{port}" for port in ports}
        server: list[str] = []
        if host := os.environ.get("KUBERNETES_SERVICE_HOST"):
            server = [f"{bracketed(host)}:{os.environ.get('KUBERNETES_SERVICE_PORT', '443')}"]
        kept: list[str] = []
        for target, addresses in (("ZooKeeper", zookeeper), ("the brokers", brokers), ("the API server", server)):
            reached = _reachable(sorted(addresses))
            if addresses and not reached:
                tried = ", ".join(sorted(addresses)[:5])
                raise ObservationError(
                    target, f"the operator itself reaches none of {tried}, so a probe that fails would prove nothing"
                )
            kept += reached
        return tuple(dict.fromkeys(kept))

    def _probe(self, facts: DryStartFacts, closed: tuple[str, ...]) -> tuple[str, ...]:
        """Return the addresses that the probe pod reached.

        Raises
        ------
        ActionError
            The probe pod did not run, so the result is unknown.
        """
        pod = builder.probe_pod(facts, closed)
        name = pod["metadata"]["name"]
        self._create(facts, pod)
        ended = self._wait(facts, {name}).get(name)
        trouble = "it did not end"
        if ended is not None:
            code = _exit_code(ended, "probe")
            if code == 0:
                return ()
            if code == EXIT_REACHED:
                return _reached(ended, "probe") or closed
            trouble = workloads.pod_trouble(ended) or f"its exit code is {code}"
        raise ActionError(
            f"pod {name}, which proves that copies reach nothing: {trouble} (after {WAIT_SECONDS:.0f} s at most)"
        )

    def _start_copies(
        self, facts: DryStartFacts, copies: Sequence[tuple[CopyFacts, Mapping[str, str]]]
    ) -> tuple[CopyOutcome, ...]:
        failed: dict[CopyKey, str] = {}
        for copy, _ in copies:
            try:
                self._create(facts, builder.copy_pod(facts, copy))
            except ActionError as error:
                failed[copy.key] = str(error)
        waited = {builder.copy_name(copy.key, facts.run) for copy, _ in copies if copy.key not in failed}
        ended = self._wait(facts, waited)

        def outcome(copy: CopyFacts, overlay: Mapping[str, str]) -> CopyOutcome:
            if copy.key in failed:
                return CopyOutcome(copy.key, copy.broker_id, None, problem=failed[copy.key], overlay=overlay)
            return self._outcome(facts, copy, overlay, ended.get(builder.copy_name(copy.key, facts.run)))

        return tuple(outcome(*copy) for copy in copies)

    def _create(self, facts: DryStartFacts, pod: Object) -> None:
        """Create a gated pod, compare the admitted pod with the requested one, and remove the gate.

        Raises
        ------
        ActionError
            The API server refuses the pod, or admission changed it. A changed pod is deleted before it runs.
        """
        name = pod["metadata"]["name"]
        admitted = self._kubernetes.create(pod)
        problem = ""
        if not admitted["spec"].get("schedulingGates"):
            problem = "the API server does not hold it back (schedulingGates, Kubernetes 1.27)"
        elif changed := builder.additions(pod, admitted):
            problem = f"admission of this cluster put in {', '.join(changed)}; a copy with that is not started"
        if problem:
            self._kubernetes.delete(*_POD, facts.namespace, name, grace_seconds=0)
            raise ActionError(f"pod {name}: {problem}")
        self._kubernetes.merge_patch(*_POD, facts.namespace, name, {"spec": {"schedulingGates": None}})

    def _wait(self, facts: DryStartFacts, waited: set[str]) -> dict[str, Object]:
        """Return the last state of the pods when all have ended or are stuck, or the time is up."""
        stuck_since: dict[str, float] = {}

        def is_open(name: str, pod: Object) -> bool:
            if section(pod, "status").get("phase") in ("Succeeded", "Failed"):
                return False
            if not workloads.pod_trouble(pod):
                return True
            now = time.monotonic()
            return now - stuck_since.setdefault(name, now) <= _STUCK_SECONDS

        def look() -> dict[str, Object]:
            by_name = {pod["metadata"]["name"]: pod for pod in self._list(facts, run=facts.run)}
            return {name: pod for name, pod in by_name.items() if name in waited}

        def is_done(pods: Mapping[str, Object]) -> bool:
            # Every pod is asked, because each is stuck since it is first seen so.
            return not [name for name, pod in pods.items() if is_open(name, pod)]

        return _poll(look, is_done, WAIT_SECONDS)

    def _outcome(
        self, facts: DryStartFacts, copy: CopyFacts, overlay: Mapping[str, str], pod: Object | None
    ) -> CopyOutcome:
        outcome = CopyOutcome(copy.key, copy.broker_id, None, overlay=overlay)
        if pod is None:
            return _failed(outcome, "the copy is gone")
        outcome = replace(outcome, images=_images(copy, pod))
        name = pod["metadata"]["name"]
        for container in entries(pod, "spec", "initContainers"):
            code = _exit_code(pod, container["name"])
            if code == 0:
                continue
            text = self._log(facts, name, container["name"])
            reached = _reached(pod, container["name"])
            if code == EXIT_REACHED and reached:
                return _failed(outcome, f"the copy reaches {', '.join(reached)} although the NetworkPolicy closes it")
            how = _end(code, "did not end")
            if trouble := workloads.pod_trouble(pod):
                how += f" ({trouble})"
            return _failed(outcome, f"init container {container['name']} {how}", text)
        text = self._log(facts, name, copy.container)
        start = kafka_start(text) or kafka_start(_message(pod, copy.container))
        if start is None:
            code = _exit_code(pod, copy.container)
            how = workloads.pod_trouble(pod) or _end(code, f"did not end in {WAIT_SECONDS:.0f} s")
            problem = f"container {copy.container} {how} and never came to Kafka's start"
            if code is not None and not agent_loaded(text):
                problem += (
                    ". Its log shows no JVM that loaded the agent: "
                    "it ended before one started, the image has none, "
                    "or its entrypoint clears JAVA_TOOL_OPTIONS and _JAVA_OPTIONS"
                )
            return _failed(outcome, problem, text)
        own = section(pod, "status").get("podIP")
        theirs = section(copy.live, "status").get("podIP")
        aliases = {name: copy.key.pod}
        if own and theirs:
            aliases[own] = theirs
        return replace(outcome, start=start, aliases=aliases)

    def _log(self, facts: DryStartFacts, pod: str, container: str) -> str:
        try:
            return self._kubernetes.pod_logs(facts.namespace, pod, container, _LOG_LINES) or ""
        except MigrationError:
            return ""  # a container that never ran has no log

    def _list(self, facts: DryStartFacts, run: str = "") -> tuple[Object, ...]:
        labels = {LABEL_MIGRATION: facts.migration, LABEL_ROLE: builder.ROLE}
        if run:
            labels[LABEL_RUN] = run
        selector = ",".join(f"{k}={v}" for k, v in labels.items())
        return self._kubernetes.list(*_POD, facts.namespace, selector)

    def _remove(self, facts: DryStartFacts) -> None:
        """Delete all pods of the migration's dry starts and clear their Secret; the NetworkPolicy remains."""
        for pod in self._list(facts):
            self._kubernetes.delete(*_POD, facts.namespace, pod["metadata"]["name"], grace_seconds=0)
        _poll(lambda: self._list(facts), lambda found: not found, _STUCK_SECONDS)
        self._kubernetes.apply(builder.run_secret(facts, "", ()), force=True)


def channels_of(kubernetes: ReadPort, namespace: str, spec: MigrationSpec) -> tuple[BrokersSpec, ...]:
    """Return ``spec.brokers`` with each channel that the pod templates may have, the most likely first.

    Raises
    ------
    ObservationError
        A StatefulSet, or an object that it refers to, cannot be read.
    """
    templates = []
    for ref in spec.brokers.stateful_sets:
        pod = workloads.existing(kubernetes, namespace, ref.name)["spec"]["template"]["spec"]
        templates.append((pod, _referenced_files(kubernetes, namespace, pod)))
    return dry_start.likely_channels(spec.brokers, templates)


def _referenced_files(
    kubernetes: ReadPort, namespace: str, pod: Mapping[str, Any]
) -> dict[tuple[str, str], MountedFiles]:
    files: dict[tuple[str, str], MountedFiles] = {}
    for kind, name in dry_start.referenced(pod):
        referenced = kubernetes.get("v1", kind, namespace, name)
        if referenced is not None:
            files[kind, name] = MountedFiles(FilesKind(kind), name, section(referenced, "data"))
    return files


def _poll(look: Callable[[], _Seen], is_done: Callable[[_Seen], bool], seconds: float) -> _Seen:
    """Look every `_POLL_SECONDS` until ``is_done``, for at most ``seconds``; return what was seen last."""
    deadline = time.monotonic() + seconds
    while True:
        answer = look()
        if is_done(answer) or time.monotonic() >= deadline:
            return answer
        time.sleep(_POLL_SECONDS)


def _failed(outcome: CopyOutcome, problem: str, text: str = "") -> CopyOutcome:
    return replace(outcome, problem=problem, words=last_words(text), programs=programs(text))


def _fingerprint(
    spec: MigrationSpec,
    settings: Settings,
    sources: Sequence[_Source],
    listener: ListenerOfControllers | None = None,
    untried: str = "",
) -> str:
    of_listener = None if listener is None else sorted(asdict(listener).items())
    common = [settings.operator_image, _unfenced_accepted(spec), of_listener, untried]
    return dry_start.fingerprint([*common, *(s.parts for s in sources)])


def _unfenced_accepted(spec: MigrationSpec) -> bool:
    return any(a.code == Code.DRY_START_UNFENCED for a in spec.preflight.accepted)


def _reachable(addresses: Sequence[str]) -> list[str]:
    with ThreadPoolExecutor(max_workers=max(1, len(addresses))) as pool:
        return [a for a, reached in zip(addresses, pool.map(connects, addresses), strict=True) if reached]


def _container_ports(pod: Object, container: str) -> set[int]:
    kafka = [c for c in pod["spec"]["containers"] if c["name"] == container]
    return {port["containerPort"] for c in kafka for port in entries(c, "ports")}


def _log_dirs(settings: Sequence[BrokerSetting] | Unobserved) -> tuple[str, ...]:
    values: dict[str, str | None] = {}
    if not isinstance(settings, Unobserved):
        values = {setting.name: setting.value for setting in settings}
    directories = values.get("log.dirs") or values.get("log.dir") or _DEFAULT_LOG_DIR
    return tuple(filter(None, map(str.strip, directories.split(","))))


def _statuses(pod: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    return (*entries(pod, "status", "initContainerStatuses"), *entries(pod, "status", "containerStatuses"))


def _containers(pod: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    containers = (*entries(pod, "spec", "initContainers"), *entries(pod, "spec", "containers"))
    return {container["name"]: container for container in containers}


def _images(copy: CopyFacts, pod: Object) -> tuple[ContainerImage, ...]:
    """Return the images of those containers in a copy that the running pod has, too, each with the running pod's.

    A template that no pod was made from yet may have more containers.
    Nothing of them runs that their image could differ from.
    """
    live_ids = {s["name"]: str(s.get("imageID") or "") for s in _statuses(copy.live)}
    copy_ids = {s["name"]: str(s.get("imageID") or "") for s in _statuses(pod)}
    live = _containers(copy.live)
    copied = _containers(pod)
    return tuple(
        ContainerImage(
            container=name,
            live=str(live[name].get("image", "")),
            live_id=live_ids.get(name, ""),
            copy=str(container.get("image", "")),
            copy_id=copy_ids.get(name, ""),
            live_node=str(section(copy.live, "spec").get("nodeName", "")),
            copy_node=str(pod["spec"].get("nodeName", "")),
        )
        for name, container in copied.items()
        if name != builder.PREPARE and name in live
    )


def _terminated(pod: Object, container: str) -> Mapping[str, Any]:
    status = next((s for s in _statuses(pod) if s["name"] == container), None)
    return section(status, "state", "terminated")


def _exit_code(pod: Object, container: str) -> int | None:
    code = _terminated(pod, container).get("exitCode")
    return None if code is None else int(code)


def _end(code: int | None, unended: str) -> str:
    return unended if code is None else f"ended with code {code}"


def _message(pod: Object, container: str) -> str:
    return str(_terminated(pod, container).get("message") or "")


def _reached(pod: Object, container: str) -> tuple[str, ...]:
    try:
        return tuple(str(a) for a in json.loads(_message(pod, container))["reached"])
    except (ValueError, KeyError, TypeError):
        return ()
