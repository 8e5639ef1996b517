"""Reads what the copies of a dry start are made from: StatefulSets, what they refer to, and the brokers that run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from kraftbridge.builders import dry_start_pods as builder
from kraftbridge.builders.broker_overlays import INHERITED_OPTIONS, BrokerFacts, configuration, overlaid_settings
from kraftbridge.builders.dry_start_pods import CopyFacts
from kraftbridge.builders.pods import completed, with_settings
from kraftbridge.config import Settings
from kraftbridge.copies import dry_start
from kraftbridge.copies.image_pulls import Wanted, images_of
from kraftbridge.exceptions import InvalidSpecError, ObservationError
from kraftbridge.models.dry_start import UNKNOWN_BROKER, CopyKey, ListenerOfControllers
from kraftbridge.models.mounted_files import FilesKind, MountedFiles
from kraftbridge.models.objects import entries, section
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.spec import BrokersSpec, MigrationSpec
from kraftbridge.models.status import DryStartRunStatus
from kraftbridge.models.survey import BrokerSetting, Unobserved
from kraftbridge.phases.draft import Identity, Migration
from kraftbridge.phases.dry_starting import accepts_unfenced
from kraftbridge.pods.fence import reachable
from kraftbridge.services.clients import ClusterClients, addresses_of, bracketed, listener_data
from kraftbridge.services.copy_outcomes import statuses
from kraftbridge.services.facts import Facts
from kraftbridge.services.listener import CannotBeTriedError, listener_of_controllers
from kraftbridge.services.observe import workloads
from kraftbridge.services.original_state import modes_of
from kraftbridge.storage.ports import Object, ReadPort

_POD: Final = ("v1", "Pod")
_SERVICE: Final = ("v1", "Service")
_DEFAULT_LOG_DIR: Final = "/tmp/kafka-logs"  # noqa: S108 - Kafka's default of log.dir

_ZOOKEEPER: Final = "ZooKeeper"

Copy = tuple[CopyFacts, Mapping[str, str]]
"""What a copy is made from, and the settings that its mode sets."""


@dataclass(frozen=True, slots=True)
class _Source:
    """One StatefulSet that is copied."""

    stateful_set: Object
    pods: Mapping[int, Object]
    """The live pods by ordinal."""
    parts: tuple[Any, ...] = field(default=())
    """The input of the fingerprint."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything that the copies are made from, as one reading shows it."""

    sources: tuple[_Source, ...]
    listener: ListenerOfControllers | None
    """What the copies try their credentials with."""
    untried: str
    """Why there is nothing to try them with."""
    fingerprint: str


class InputReader:
    """Reads the inputs of dry starts, and derives the copies from them."""

    def __init__(self, settings: Settings, facts: Facts) -> None:
        self._settings = settings
        self._facts = facts

    def read(self, migration: Migration) -> Inputs:
        """Return the inputs as they are now.

        Raises
        ------
        ObservationError
            A StatefulSet, or an object that it refers to, cannot be read.
        """
        sources = self._sources(migration)
        listener, untried = self._listener(migration)
        return Inputs(
            sources, listener, untried, _fingerprint(_next_spec(migration), self._settings, sources, listener, untried)
        )

    def _sources(self, migration: Migration) -> tuple[_Source, ...]:
        sources = []
        for ref in migration.spec.brokers.stateful_sets:
            stateful_set = self._own_template(migration, ref.name)
            pods = self._facts.kubernetes.list(
                *_POD, migration.identity.namespace, workloads.pods_selector(stateful_set)
            )
            by_ordinal = {p.ordinal: p.name for p in workloads.pods_of(stateful_set, pods)}
            by_name = {p["metadata"]["name"]: p for p in pods}
            live = {ordinal: by_name[name] for ordinal, name in by_ordinal.items()}
            sources.append(_Source(stateful_set, live, self._parts(migration, stateful_set, live)))
        return tuple(sources)

    def _own_template(self, migration: Migration, name: str) -> Object:
        """Return a StatefulSet without our overlay: in the middle of a migration, copies get the overlay of a mode."""
        present = workloads.existing(self._facts.kubernetes, migration.identity.namespace, name)
        own = self._facts.own_template(migration, present)
        return present if own is None else dict(own)

    def _listener(self, migration: Migration) -> tuple[ListenerOfControllers | None, str]:
        """Return what the copies try their credentials with, or why there is nothing."""
        identity = migration.identity
        spec = migration.spec
        try:
            name = migration.controllers
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
        migration: Migration,
        stateful_set: Object,
        live: Mapping[int, Object],
    ) -> tuple[Any, ...]:
        template = stateful_set["spec"]["template"]
        pod = template["spec"]
        data = []
        for kind, name in dry_start.referenced(pod):
            referenced = section(self._facts.kubernetes.get("v1", kind, migration.identity.namespace, name))
            data.append((kind, name, referenced.get("data"), referenced.get("binaryData")))
        images = {(ordinal, c["name"]): c.get("imageID") for ordinal, p in live.items() for c in statuses(p)}
        original = self._facts.original(migration, stateful_set)
        overlays: list[str] = []
        if original is not None:
            # The status has no cluster id before preflight passes; an id that becomes known changes no template.
            facts = replace(self._facts.brokers(migration, original), cluster_id="")
            overlays = [configuration(migration.spec, facts, mode) for mode in modes_of(facts)]
        name = stateful_set["metadata"]["name"]
        service = stateful_set["spec"].get("serviceName")
        # Charts put checksums of what a template refers to into annotations, and injectors of sidecars read both.
        read = [section(template, "metadata", "labels"), section(template, "metadata", "annotations")]
        # Two channels may set the same settings: a report about one says nothing about the other.
        channel = dry_start.described(migration.spec.brokers)
        return (name, service, pod, read, data, sorted(map(str, images.items())), overlays, channel)

    def copies(
        self,
        migration: Migration,
        clients: ClusterClients,
        run: DryStartRunStatus,
        sources: Sequence[_Source],
    ) -> list[Copy]:
        """Return the copies of every pod in the channel of ``spec.brokers``.

        Where no id of a broker is known, they show the ids: in the present mode, with blank directories.

        Raises
        ------
        ObservationError
            A StatefulSet cannot be copied, or the id of a broker is not known.
        """
        spec = migration.spec
        running = clients.brokers.broker_settings()
        migration = replace(migration, status=migration.status.model_copy(update={"cluster_id": run.cluster_id}))
        shows_ids = not run.broker_ids
        copies: list[Copy] = []
        for source in sources:
            original = self._facts.original(migration, source.stateful_set)
            name = source.stateful_set["metadata"]["name"]
            if original is None:
                raise ObservationError(
                    f"StatefulSet {name}", f"it has no container {spec.brokers.container}, or it carries an overlay"
                )
            brokers = self._facts.brokers(migration, original)
            for key in _keys(brokers, name, sorted(source.pods)):
                if shows_ids and key.mode is not BrokerMode.ZOOKEEPER:
                    continue
                changed, files = builder.overlaid(spec, brokers, migration.identity.name, source.stateful_set, key.mode)
                broker_id = UNKNOWN_BROKER if shows_ids else run.broker_ids.get(key.pod)
                if broker_id is None:
                    raise ObservationError(f"pod {key.pod}", "the id of its broker is not known")
                copy = CopyFacts(
                    key=key,
                    stateful_set=changed,
                    live=source.pods[key.ordinal],
                    container=spec.brokers.container,
                    broker_id=broker_id,
                    cluster_id=run.cluster_id,
                    log_dirs=() if shows_ids else _log_dirs(running.get(broker_id, ())),
                    files=files,
                    mounted=brokers.files,
                    inherits_options=brokers.java_tool_options.startswith(INHERITED_OPTIONS),
                )
                copies.append((copy, overlaid_settings(spec, brokers, key.mode)))
        return copies

    def answers(self, identity: Identity, sources: Sequence[_Source]) -> tuple[Object, ...]:
        """Return what init containers that ask the API server are answered with; nothing where none does.

        Raises
        ------
        ObservationError
            The Services cannot be listed.
        """
        with_starters = [(pod, builder.starters_of(s.stateful_set)) for s in sources for pod in s.pods.values()]
        if not any(builder.asks_api_server(pod, starters) for pod, starters in with_starters):
            return ()
        services = self._facts.kubernetes.list(*_SERVICE, identity.namespace)
        return (
            *({**obj, "kind": "Service"} for obj in services),
            *({**pod, "kind": "Pod"} for pod, _ in with_starters),
        )

    def trials(
        self,
        migration: Migration,
        copies: Sequence[Copy],
        *,
        choosing: bool,
    ) -> list[Copy]:
        """Return copies of each StatefulSet's first pod with the overlay in every other channel its template may have.

        To choose a channel, return copies of the last pods, too.
        """
        identity = migration.identity
        trials: list[Copy] = []
        present = [copy for copy, _ in copies if copy.key.mode is BrokerMode.ZOOKEEPER]
        firsts = {copy.key.stateful_set: copy for copy in reversed(present)}
        chosen = list(firsts.values())
        if choosing:
            lasts = {copy.key.stateful_set: copy for copy in present}
            chosen += [copy for name, copy in lasts.items() if copy is not firsts[name]]
        for present_copy in chosen:
            pod = present_copy.stateful_set["spec"]["template"]["spec"]
            mounted = _referenced_files(self._facts.kubernetes, identity.namespace, pod)
            for brokers in dry_start.other_channels(migration.spec.brokers, pod, mounted):
                other = migration.spec.model_copy(update={"brokers": brokers})
                stateful_set = present_copy.stateful_set
                tried = replace(migration, spec=other)
                original = self._facts.original(tried, stateful_set)
                if original is None:
                    continue
                facts = self._facts.brokers(tried, original)
                facts = replace(facts, cluster_id=present_copy.cluster_id)
                for mode in dry_start.OTHER_MODES:
                    changed, files = builder.overlaid(other, facts, identity.name, stateful_set, mode)
                    key = replace(present_copy.key, mode=mode, channel=dry_start.described(brokers))
                    copy = replace(present_copy, key=key, stateful_set=changed, files=files, mounted=facts.files)
                    trials.append((copy, overlaid_settings(other, facts, mode)))
        return trials

    def wanted_images(self, migration: Migration, copies: Sequence[Copy]) -> tuple[Wanted, ...]:
        """Return the images of the next pods of each StatefulSet, in whatever mode, and of the controllers.

        The agent and the helpers of the controllers are in the operator's image.
        """
        by_set: dict[str, list[CopyFacts]] = {}
        for copy, _ in copies:
            by_set.setdefault(copy.key.stateful_set, []).append(copy)
        wanted = []
        for name, of_set in sorted(by_set.items()):
            templates = [copy.stateful_set["spec"]["template"]["spec"] for copy in of_set]
            wanted.append(Wanted(f"StatefulSet/{name}", images_of(*templates), templates[0]))
        spec = _next_spec(migration)
        pods = completed(spec.pods, self._facts.pod_defaults(migration.identity.namespace, spec))
        controllers = with_settings({"metadata": {}, "spec": {}}, pods, spec.controllers)["spec"]
        images = {
            spec.controllers.image: str(spec.controllers.image_pull_policy),
            self._settings.operator_image: "IfNotPresent",
        }
        return (*wanted, Wanted("controllers", images, controllers))

    def nodes(self) -> dict[str, Mapping[str, str]]:
        """Return the labels of the nodes that take pods: Ready and not cordoned.

        Raises
        ------
        ObservationError
            They cannot be listed.
        """
        nodes = filter(workloads.takes_pods, self._facts.kubernetes.list("v1", "Node", None))
        labels = {node["metadata"]["name"]: section(node, "metadata", "labels") for node in nodes}
        return dict(sorted(labels.items()))

    def closed(
        self, identity: Identity, spec: MigrationSpec, sources: Sequence[_Source], *, ended: bool = False
    ) -> tuple[str, ...]:
        """Return the addresses that copies must not reach.

        The operator reaches each of them; otherwise a failed connection would prove nothing.
        The metadata server of a cloud and an address outside of the cluster are among them only where it does.

        Parameters
        ----------
        ended
            Whether the migration has ended, so that ZooKeeper may be gone.

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
        for target, addresses in ((_ZOOKEEPER, zookeeper), ("the brokers", brokers), ("the API server", server)):
            reached = reachable(sorted(addresses))
            if addresses and not reached and not (ended and target == _ZOOKEEPER):
                tried = ", ".join(sorted(addresses)[:5])
                raise ObservationError(
                    target, f"the operator itself reaches none of {tried}, so a probe that fails would prove nothing"
                )
            kept += reached
        # In a cluster without a way out nothing is there to close, and a failed connection would prove nothing.
        kept += reachable(self._settings.beyond_the_cluster)
        return tuple(dict.fromkeys(kept))


def _keys(brokers: BrokerFacts, name: str, ordinals: Sequence[int]) -> tuple[CopyKey, ...]:
    """Return the copies that are made of a StatefulSet."""
    if brokers.kafka4 is not None:
        return dry_start.copies_for_kafka4(name, ordinals)
    bridge = [mode for mode in modes_of(brokers) if mode.is_of_bridge]
    return dry_start.copies_of(name, ordinals, bridge)


def _next_spec(migration: Migration) -> MigrationSpec:
    """Return the spec with the image that the controllers get next."""
    leg = migration.status.kafka4_leg
    if leg is None:
        return migration.spec
    controllers = migration.spec.controllers.model_copy(update={"image": leg.controllers_image})
    return migration.spec.model_copy(update={"controllers": controllers})


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


def _fingerprint(
    spec: MigrationSpec,
    settings: Settings,
    sources: Sequence[_Source],
    listener: ListenerOfControllers | None = None,
    untried: str = "",
) -> str:
    of_listener = None if listener is None else sorted(asdict(listener).items())
    common = [settings.operator_image, accepts_unfenced(spec), of_listener, untried, _pulled_for_controllers(spec)]
    return dry_start.fingerprint([*common, *(s.parts for s in sources)])


def _pulled_for_controllers(spec: MigrationSpec) -> list[Any]:
    """Return what decides which image the controllers' nodes get, on which of them, and how."""
    placed = {"node_selector", "tolerations", "affinity"}
    return [
        spec.controllers.model_dump(include={*placed, "image", "image_pull_policy"}),
        spec.pods.model_dump(include={*placed, "image_pull_secrets", "service_account_name"}),
    ]


def _container_ports(pod: Object, container: str) -> set[int]:
    kafka = [c for c in pod["spec"]["containers"] if c["name"] == container]
    return {port["containerPort"] for c in kafka for port in entries(c, "ports")}


def _log_dirs(settings: Sequence[BrokerSetting] | Unobserved) -> tuple[str, ...]:
    values: dict[str, str | None] = {}
    if not isinstance(settings, Unobserved):
        values = {setting.name: setting.value for setting in settings}
    directories = values.get("log.dirs") or values.get("log.dir") or _DEFAULT_LOG_DIR
    return tuple(filter(None, map(str.strip, directories.split(","))))
