"""Observes what only preflight needs: rights, capacity, disruption budgets, ACLs, broker settings.

Each part can be unobserved.

What a migration needs is read from the objects that builders make.
The chart grants the same rights (``tests/chart/test_rbac.py`` compares both).
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, TypeVar

from kubernetes.utils.quantity import parse_quantity

from kraftbridge.builders import broker_overlays as overlays
from kraftbridge.builders import controllers as quorum
from kraftbridge.builders import names
from kraftbridge.builders.verification import (
    JOB_MEMORY,
    heap_mebibytes,
    job_limit_mebibytes,
    overhead_mebibytes,
)
from kraftbridge.config import Settings
from kraftbridge.constants import LABEL_MIGRATION, SPARK_API_VERSION
from kraftbridge.exceptions import ActionError, ActionRefusedError, InvalidSpecError, ObservationError
from kraftbridge.models.objects import entries, section
from kraftbridge.models.observation import NOT_NEEDED, Unobserved
from kraftbridge.models.phase import ControllerMode, Phase
from kraftbridge.models.spec import MigrationSpec, Runner
from kraftbridge.models.status import before_secrets, rendered_spec
from kraftbridge.models.survey import (
    BrokerSetting,
    Budget,
    Capacity,
    ControllersDemand,
    Demand,
    Limit,
    LogDir,
    LoginTrial,
    Quota,
    RefusedChange,
    Right,
    Room,
    StorageClass,
    Survey,
    Visibility,
    ZooKeeperUsers,
)
from kraftbridge.outside.properties import parse_properties
from kraftbridge.phases.draft import Identity, Migration
from kraftbridge.pods.credentials import CERTIFICATE_KEYS, listener_problems
from kraftbridge.services.answers import Answer, Answers, Outcomes
from kraftbridge.services.clients import (
    ClusterClients,
    controllers_zookeeper_identities,
    listener_data,
    qualified_addresses,
    secret_text,
)
from kraftbridge.services.facts import Facts
from kraftbridge.services.observe import workloads
from kraftbridge.services.observe.inter_broker import Controllers, LoginTrials
from kraftbridge.services.observe.migrations import MigrationClaims
from kraftbridge.services.original_state import modes_of
from kraftbridge.storage.ports import Object, ReadPort


def controllers_demand(spec: MigrationSpec, facts: quorum.ControllersFacts) -> ControllersDemand:
    """Return the resources that the controllers' pods request.

    Raises
    ------
    ObservationError
        A quantity in ``spec.controllers`` cannot be parsed.
    """
    objects = quorum.controllers_objects(spec, facts, ControllerMode.MIGRATION, format_allowed=True)
    stateful_set = next(o["spec"] for o in objects if o["kind"] == "StatefulSet")
    pod = stateful_set["template"]["spec"]
    (claim,) = stateful_set["volumeClaimTemplates"]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    try:
        return ControllersDemand(
            pods=stateful_set["replicas"],
            containers=tuple(map(_container_demand, pod["containers"])),
            init_containers=tuple(map(_container_demand, pod["initContainers"])),
            storage_bytes=whole("storage", claim["spec"]["resources"]["requests"]["storage"]),
            node_selector=pod.get("nodeSelector", {}),
            tolerations=tuple(pod.get("tolerations", ())),
            apart=bool(section(pod, "affinity", "podAntiAffinity").get(required)),
        )
    except ValueError as error:
        raise ObservationError("spec.controllers", str(error)) from error


def run_demand(spec: MigrationSpec, runner: Runner) -> tuple[Demand, ...]:
    """Return the resources that the pods of one run request: driver and executors, or the Job's only pod.

    Spark sets heap and overhead (``overhead_mebibytes``) as request and limit of memory.
    """
    verification = spec.verification
    cpu = whole("cpu", verification.core_request)
    most = None
    if verification.core_limit is not None:
        most = whole("cpu", verification.core_limit)
    if runner is Runner.JOB:
        limit = job_limit_mebibytes(verification.driver_memory) << 20
        return (Demand("verifier", cpu, whole("memory", JOB_MEMORY), most, limit),)

    def pod(name: str, heap: str, *, alone: bool = False) -> Demand:
        total = (heap_mebibytes(heap) + overhead_mebibytes(heap, alone=alone)) << 20
        return Demand(name, cpu, total, most, total)

    executors = (pod(f"executor {i}", verification.executor_memory) for i in range(1, verification.executors + 1))
    return (pod("driver", verification.driver_memory, alone=verification.executors == 0), *executors)


def _container_demand(container: dict[str, Any]) -> Demand:
    requests = wholes(section(container, "resources", "requests"))
    limits = wholes(section(container, "resources", "limits"))
    return Demand(
        container["name"],
        requests.get("cpu", limits.get("cpu")),
        requests.get("memory", limits.get("memory")),
        limits.get("cpu"),
        limits.get("memory"),
    )


def whole(resource: str, text: object) -> int:
    """Return a quantity of a resource, rounded up: millicores for CPU, bytes or a count for all others.

    Raises
    ------
    ValueError
        ``text`` is not a quantity.
    """
    try:
        exact: Decimal = parse_quantity(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a quantity") from error
    if resource == "cpu" or resource.endswith(".cpu"):
        exact *= 1000
    return math.ceil(exact)


def wholes(resources: Mapping[str, Any] | None) -> dict[str, int]:
    """Return a resource list (``requests``, ``allocatable``, ``hard``) in whole numbers."""
    return {name: whole(name, text) for name, text in (resources or {}).items()}


_APPLY: Final = ("get", "create", "patch")
"""Server-side apply of an object that may not exist yet."""

_ALWAYS: Final[dict[tuple[str, str, str], tuple[str, ...]]] = {
    ("kraftbridge.dev", "kafkamigrations", ""): ("list",),
    ("kraftbridge.dev", "kafkamigrations", "status"): ("patch",),
    ("apps", "statefulsets", ""): (*_APPLY, "list", "delete"),
    ("", "pods", ""): ("get", "list", "create", "patch", "delete"),
    ("", "pods", "eviction"): ("create",),
    ("", "pods", "log"): ("get",),
    ("", "services", ""): (*_APPLY, "list"),
    # Deleted with their runs, and once no controller mounts them.
    ("", "configmaps", ""): (*_APPLY, "list", "delete"),
    ("", "secrets", ""): _APPLY,
    ("", "serviceaccounts", ""): ("get",),
    ("", "persistentvolumeclaims", ""): ("get", "list", "create"),
    ("policy", "poddisruptionbudgets", ""): (*_APPLY, "list"),
    ("networking.k8s.io", "networkpolicies", ""): (*_APPLY, "list"),
    ("coordination.k8s.io", "leases", ""): ("get", "create", "patch", "delete"),
    ("", "events", ""): ("list",),
    ("events.k8s.io", "events", ""): ("create",),
    ("batch", "jobs", ""): ("get", "create", "delete"),
    ("rbac.authorization.k8s.io", "roles", ""): ("create",),
    ("rbac.authorization.k8s.io", "rolebindings", ""): ("create",),
}
_SPARK_OPERATOR: Final = ("sparkoperator.k8s.io", "sparkapplications", "")


def needed_rights(spec: MigrationSpec, *, spark_operator: bool) -> tuple[Right, ...]:
    """Return every right that a migration uses in its namespace."""
    verbs_of = dict(_ALWAYS)
    if spark_operator and spec.verification.runner is Runner.SPARK_APPLICATION:
        verbs_of[_SPARK_OPERATOR] = ("get", "create", "delete")
    return tuple(Right(verb, *resource) for resource, verbs in verbs_of.items() for verb in verbs)


T = TypeVar("T")
SILENT_SECONDS: Final = 2.0
"""An answer that fails later than this was no answer."""
CAPACITY_EVERY_SECONDS: Final = 30.0
"""All pods of a cluster are the largest answer that the operator asks for; every migration in preflight needs it."""

LOG_DIRS_EVERY_SECONDS: Final = 15.0
"""Brokers with many partitions answer with megabytes, and somebody may be mending what was found."""

ACCEPTED_FOR_SECONDS: Final = 300.0
"""How long an accepted dry run holds while the object stays the same.
The change itself goes through admission again."""
REFUSED_FOR_SECONDS: Final = 30.0
"""How long a refused dry run holds, so that a corrected policy is seen soon."""

_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_FINISHED = ("Succeeded", "Failed")
_AWAY = ("NoSchedule", "NoExecute")
_NOT_OURS = frozenset({"Terminating", "BestEffort", "CrossNamespacePodAffinity", "PriorityClass"})
"""Scopes of quotas that do not count long-running pods with requests and without a priority class."""


class Surveyor:
    """Creates a `Survey`, one part after the other."""

    def __init__(self, kubernetes: ReadPort, settings: Settings, facts: Facts) -> None:
        self._kubernetes = kubernetes
        self._facts = facts
        self._settings = settings
        self._rooms: dict[str | None, Answer[Capacity]] = {}
        self._outcomes = Outcomes(ACCEPTED_FOR_SECONDS, REFUSED_FOR_SECONDS)
        """Of each dry run, by a digest of its object."""
        self._logins = LoginTrials()
        self._directories: Answers[str, Mapping[int, tuple[LogDir, ...] | Unobserved]] = Answers()
        self._claims = MigrationClaims(kubernetes, settings)
        self._rooms_lock = threading.Lock()
        """Held while the room is read, so that migrations do not read it at the same time.
        Nobody waits for it who knows an older answer."""

    def survey(self, migration: Migration, clients: ClusterClients) -> Survey:
        """Return the current survey; this changes nothing."""
        identity = migration.identity
        spec = migration.spec
        namespace = identity.namespace
        started = time.monotonic()
        visibility = _attempt(clients.brokers.visibility)
        late = time.monotonic() - started > SILENT_SECONDS
        acls = _attempt(clients.zookeeper.acls)

        # Brokers that did not answer are not asked again: each question would cost its whole time limit.
        def unless_silent(ask: Callable[[], T]) -> T | Unobserved:
            if late and isinstance(visibility, Unobserved):
                return visibility
            return _attempt(ask)

        users: ZooKeeperUsers | Unobserved
        users = acls if isinstance(acls, Unobserved) else _attempt(lambda: self._users(identity, clients))
        brokers = unless_silent(clients.brokers.broker_settings)
        return Survey(
            zookeeper=acls,
            zookeeper_users=users,
            zookeeper_identities=controllers_zookeeper_identities(self._kubernetes, namespace, spec),
            visibility=visibility,
            reassigning=unless_silent(clients.brokers.reassigning_partitions),
            brokers=brokers,
            log_dirs=unless_silent(lambda: self._log_dirs(identity, clients)),
            listener_settings=_attempt(lambda: self._listener_settings(migration)),
            listener_problems=_attempt(lambda: self._listener_problems(migration)),
            demand=_attempt(
                lambda: controllers_demand(
                    rendered_spec(spec, migration.status), self._facts.unread_controllers(migration)
                )
            ),
            verification=run_demand(spec, self._runner(spec)),
            storage_classes=_attempt(self._storage_classes),
            quotas=_attempt(lambda: self._quotas(namespace)),
            limits=_attempt(lambda: self._limits(namespace)),
            capacity=_attempt(lambda: self._capacity(namespace)),
            budgets=_attempt(lambda: self._budgets(namespace, spec)),
            missing_rights=_attempt(lambda: self._missing_rights(namespace, spec)),
            writers=_attempt(lambda: self._writers(namespace, spec)),
            leftovers=_attempt(lambda: self._leftovers(identity)),
            migrations=_attempt(lambda: self._claims.read(identity)),
            selecting=_attempt(lambda: self._selecting(identity, spec)),
            refused=_attempt(lambda: self._refused(migration)),
            inter_broker=_attempt(lambda: self._inter_broker(migration, clients, brokers)),
        )

    def settings(self, migration: Migration, clients: ClusterClients) -> Survey:
        """Return the part of the survey that tells the brokers' settings, as a migration asks for it after preflight.

        This asks each broker one question, besides one for the list of brokers, and reads one Secret.
        Before the first broker restarts, it also asks what the principal may see,
        and the controllers' logins are tried (`inter_broker`).
        """
        brokers = _attempt(clients.brokers.broker_settings)
        visibility: Visibility | Unobserved = NOT_NEEDED
        logins: dict[int, LoginTrial] | Unobserved = {}
        if migration.status.phase is Phase.PROVISIONING_QUORUM:
            visibility = _attempt(clients.brokers.visibility)
            logins = _attempt(lambda: self._inter_broker(migration, clients, brokers))
        return Survey(
            zookeeper=NOT_NEEDED,
            zookeeper_users=NOT_NEEDED,
            zookeeper_identities=(),
            visibility=visibility,
            reassigning=NOT_NEEDED,
            brokers=brokers,
            listener_settings=_attempt(lambda: self._listener_settings(migration)),
            listener_problems=(),
            demand=NOT_NEEDED,
            verification=(),
            storage_classes=NOT_NEEDED,
            quotas=NOT_NEEDED,
            limits=NOT_NEEDED,
            capacity=NOT_NEEDED,
            budgets=NOT_NEEDED,
            missing_rights=NOT_NEEDED,
            writers=NOT_NEEDED,
            leftovers=NOT_NEEDED,
            migrations=NOT_NEEDED,
            selecting=NOT_NEEDED,
            refused=NOT_NEEDED,
            inter_broker=logins,
        )

    def _inter_broker(
        self,
        migration: Migration,
        clients: ClusterClients,
        brokers: Mapping[int, tuple[BrokerSetting, ...] | Unobserved] | Unobserved,
    ) -> dict[int, LoginTrial]:
        if isinstance(brokers, Unobserved):
            return {}  # another finding reports it
        answers = {broker: answer for broker, answer in brokers.items() if not isinstance(answer, Unobserved)}
        values = {broker: {setting.name: setting for setting in answer} for broker, answer in answers.items()}
        try:
            secret = self._listener_secret(migration)
            of_secret = parse_properties(secret.get("listener.properties", ""))
        except ObservationError:
            return {}  # another finding reports it
        settings = migration.spec.controllers.config | of_secret
        znodes = clients.zookeeper.observe().brokers

        identity = migration.identity

        def resolvable(address: str) -> str:
            return qualified_addresses(address, identity.namespace, identity.cluster_domain)[address]

        return self._logins.failed(clients.brokers, values, znodes, Controllers(settings, secret, resolvable))

    def _log_dirs(self, identity: Identity, clients: ClusterClients) -> Mapping[int, tuple[LogDir, ...] | Unobserved]:
        """Return what is in the brokers' directories; their answers are as long as they have partitions."""
        return self._directories.get(identity.uid, LOG_DIRS_EVERY_SECONDS, clients.brokers.log_dirs, clients.brokers)

    def _users(self, identity: Identity, clients: ClusterClients) -> ZooKeeperUsers:
        """Return who else uses ZooKeeper; pods of this migration (verification, rehearsal) are no others."""
        users = clients.zookeeper.users()
        if isinstance(users.clients, Unobserved) or not users.clients:
            return users
        pods = self._kubernetes.list("v1", "Pod", identity.namespace, f"{LABEL_MIGRATION}={identity.name}")
        ours = {address["ip"] for pod in pods for address in entries(pod, "status", "podIPs")}
        return replace(users, clients=tuple(address for address in users.clients if address not in ours))

    # ------------------------------------------------------------------------------------------- admission

    def _refused(self, migration: Migration) -> tuple[RefusedChange, ...]:
        """Try every overlay of the brokers and the controllers' objects as a dry run; one refusal for each object.

        An object that was accepted is tried again after `ACCEPTED_FOR_SECONDS`,
        one that was refused after `REFUSED_FOR_SECONDS`.

        Raises
        ------
        ObservationError
            The API server gives no answer to one of them.
        """
        spec = migration.spec
        tried: list[Object] = []
        for ref in spec.brokers.stateful_sets:
            stateful_set = self._kubernetes.get("apps/v1", "StatefulSet", migration.identity.namespace, ref.name)
            if stateful_set is None:
                continue  # another finding reports it
            original = self._facts.original(migration, stateful_set)
            if original is None:
                continue  # another finding reports it
            facts = self._facts.brokers(migration, original)
            for mode in modes_of(facts):
                properties = overlays.properties_object(spec, facts, migration.identity.name, mode)
                if properties is not None:
                    tried.append(properties)
                tried.append(overlays.overlay(spec, facts, ref.name, mode))
        controllers = self._facts.controllers(migration)
        tried += quorum.controllers_objects(spec, controllers, ControllerMode.MIGRATION, format_allowed=True)
        refused: dict[str, RefusedChange] = {}
        for obj in tried:
            name = f"{obj['kind']}/{obj['metadata']['name']}"
            try:
                refusal = self._refusal(obj)
            except ActionError as error:
                raise ObservationError(name, str(error)) from error
            if refusal is not None:
                refused.setdefault(name, RefusedChange(name, refusal))
        return tuple(refused.values())

    def _refusal(self, obj: Object) -> str | None:
        now = time.monotonic()
        digest = hashlib.sha256(json.dumps(obj, sort_keys=True).encode()).hexdigest()
        outcome = self._outcomes.recall(digest)
        if outcome is not None:
            return outcome.value
        refusal = None
        try:
            self._kubernetes.try_apply(obj)
        except ActionRefusedError as error:
            refusal = str(error)
        self._outcomes.keep(digest, refusal, now)
        return refusal

    # -------------------------------------------------------------------------------------------- ourselves

    def _missing_rights(self, namespace: str, spec: MigrationSpec) -> tuple[Right, ...]:
        spark_operator = self._kubernetes.serves(SPARK_API_VERSION, "SparkApplication")
        wanted = needed_rights(spec, spark_operator=spark_operator)
        return tuple(right for right in wanted if not self._kubernetes.may(right, namespace))

    def _listener_settings(self, migration: Migration) -> frozenset[str]:
        return frozenset(parse_properties(self._listener_secret(migration).get("listener.properties", "")))

    def _listener_problems(self, migration: Migration) -> tuple[str, ...]:
        identity = migration.identity
        listener = migration.spec.controllers.listener
        name = migration.controllers
        hosts = names.controller_hosts(
            name, identity.namespace, migration.spec.controllers.node_ids, identity.cluster_domain
        )
        data = self._listener_secret(migration)
        if not listener.generate:
            return listener_problems(data, listener.security_protocol, list(hosts.values()), datetime.now(UTC))
        given = set()
        if listener.secret_name is not None:
            given = CERTIFICATE_KEYS & secret_text(self._kubernetes, identity.namespace, listener.secret_name).keys()
        issued = self._facts.issued(migration, datetime.now(UTC))
        if issued is None:
            raise ObservationError("Secret of the listener", "nothing is known of its certificates")
        missing = [secret.name for secret in issued.secrets if not secret.exists and not secret.problem]
        problems = (*issued.problems, *(f"Secret {name} does not exist" for name in missing))
        if not given:
            return problems
        twice = (
            f"Secret {listener.secret_name} has {', '.join(sorted(given))}, "
            "and spec.controllers.listener.generate asks the operator to issue them; remove one of the two"
        )
        return (twice, *problems)

    def _listener_secret(self, migration: Migration) -> dict[str, str]:
        identity = migration.identity
        name = migration.controllers
        try:
            return listener_data(self._kubernetes, identity.namespace, name, migration.spec)
        except InvalidSpecError as error:
            where = f"Secret {identity.namespace}/{migration.spec.controllers.listener.secret_name}"
            raise ObservationError(where, str(error)) from error

    # ----------------------------------------------------------------------------------------- controllers

    def _runner(self, spec: MigrationSpec) -> Runner:
        """Return the runner of verifications; the one with the higher demand if it is unknown."""
        served = _attempt(lambda: self._kubernetes.serves(SPARK_API_VERSION, "SparkApplication"))
        return Runner.JOB if served is False else spec.verification.runner

    def _storage_classes(self) -> tuple[StorageClass, ...]:
        classes = self._kubernetes.list("storage.k8s.io/v1", "StorageClass", None)
        return tuple(map(_storage_class, classes))

    def _quotas(self, namespace: str) -> tuple[Quota, ...]:
        quotas = []
        for quota in self._kubernetes.list("v1", "ResourceQuota", namespace):
            selected = entries(quota, "spec", "scopeSelector", "matchExpressions")
            scopes = {*entries(quota, "spec", "scopes"), *(expression["scopeName"] for expression in selected)}
            if scopes & _NOT_OURS:
                continue
            hard = wholes(quota["spec"].get("hard"))
            used = wholes(section(quota, "status", "used"))
            left = {name: most - used.get(name, 0) for name, most in hard.items()}
            quotas.append(Quota(quota["metadata"]["name"], left))
        return tuple(quotas)

    def _limits(self, namespace: str) -> tuple[Limit, ...]:
        return tuple(
            Limit(
                name=limits["metadata"]["name"],
                kind=entry["type"],
                minimum=wholes(entry.get("min")),
                maximum=wholes(entry.get("max")),
                default=wholes(entry.get("default")),
                default_request=wholes(entry.get("defaultRequest")),
            )
            for limits in self._kubernetes.list("v1", "LimitRange", namespace)
            for entry in limits["spec"].get("limits", [])
        )

    def _capacity(self, namespace: str) -> Capacity:
        """Return the nodes' room, shared for `CAPACITY_EVERY_SECONDS`; the older one holds while it is read anew."""
        place = namespace if self._settings.watched_namespaces else None
        room = self._rooms.get(place)
        if room is not None:
            seconds = CAPACITY_EVERY_SECONDS
            if self._rooms_lock.locked():
                seconds *= 2
            if room.holds(seconds):
                return room.value
        with self._rooms_lock:
            room = self._rooms.get(place)
            if room is None or not room.holds(CAPACITY_EVERY_SECONDS):
                read_at = time.monotonic()
                room = self._rooms[place] = Answer(self._room_of(place), read_at=read_at)
            return room.value

    def _room_of(self, place: str | None) -> Capacity:
        nodes = self._kubernetes.list("v1", "Node", None)
        used: dict[str, dict[str, int]] = {}
        for pod in self._kubernetes.list("v1", "Pod", place):
            node = section(pod, "spec").get("nodeName")
            if node and section(pod, "status").get("phase") not in _FINISHED:
                sums = used.setdefault(node, {"cpu": 0, "memory": 0, "pods": 0})
                for resource, amount in _requests(pod).items():
                    sums[resource] += amount
        rooms = (_room(node, used.get(node["metadata"]["name"], {})) for node in nodes)
        return Capacity(tuple(rooms), all_pods_seen=place is None)

    def _leftovers(self, identity: Identity) -> tuple[str, ...]:
        """Return the objects of earlier resources of the same name. Their names contain another UID.

        The operator has no right to list Secrets, so it looks for the names that belong to a StatefulSet or volume.
        """
        kinds = (("apps/v1", "StatefulSet"), ("v1", "PersistentVolumeClaim"), ("v1", "ConfigMap"))
        labelled = f"{LABEL_MIGRATION}={identity.name}"
        leftovers = set[str]()
        uids = set[str]()
        for api_version, kind in kinds:
            for obj in self._kubernetes.list(api_version, kind, identity.namespace, labelled):
                uid = names.uid_in(obj["metadata"]["name"], identity.name)
                if uid and not identity.uid.startswith(uid):
                    leftovers.add(f"{kind}/{obj['metadata']['name']}")
                    uids.add(uid)
        for secret in (name for uid in uids for name in before_secrets(identity.name, uid, 1)):
            if self._kubernetes.get("v1", "Secret", identity.namespace, secret) is not None:
                leftovers.add(f"Secret/{secret}")
        return tuple(sorted(leftovers))

    # --------------------------------------------------------------------------------------------- brokers

    def _budgets(self, namespace: str, spec: MigrationSpec) -> tuple[Budget, ...]:
        listed = self._kubernetes.list("policy/v1", "PodDisruptionBudget", namespace)
        budgets = []
        for ref in spec.brokers.stateful_sets:
            stateful_set = self._kubernetes.get("apps/v1", "StatefulSet", namespace, ref.name)
            if stateful_set is None:
                continue
            labels = section(stateful_set, "spec", "template", "metadata", "labels")
            selecting = [budget for budget in listed if selects(budget["spec"].get("selector"), labels)]
            budgets += [_budget(budget, ref.name) for budget in selecting]
        return tuple(budgets)

    def _selecting(self, identity: Identity, spec: MigrationSpec) -> tuple[str, ...]:
        """Return the objects whose selector matches a pod with the user's labels and ours, and none with ours alone."""
        if not spec.pods.labels:
            return ()
        ours = names.labels(identity.name)
        labels = {**spec.pods.labels, **ours}
        listed = self._kubernetes.list("policy/v1", "PodDisruptionBudget", identity.namespace)
        selectors = {f"PodDisruptionBudget/{o['metadata']['name']}": o["spec"].get("selector") for o in listed}
        for ref in spec.brokers.stateful_sets:
            stateful_set = self._kubernetes.get("apps/v1", "StatefulSet", identity.namespace, ref.name)
            if stateful_set is not None:
                selectors[f"StatefulSet/{ref.name}"] = stateful_set["spec"].get("selector")
        return tuple(name for name, s in selectors.items() if selects(s, labels) and not selects(s, ours))

    def _writers(self, namespace: str, spec: MigrationSpec) -> dict[str, tuple[str, ...]]:
        writers = {}
        for ref in spec.brokers.stateful_sets:
            stateful_set = self._kubernetes.get("apps/v1", "StatefulSet", namespace, ref.name)
            if stateful_set is not None:
                writers[ref.name] = writers_of(stateful_set)
        return writers


_MARKS: Mapping[str, str] = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux Kustomization",
    "helm.toolkit.fluxcd.io/name": "Flux HelmRelease",
    "meta.helm.sh/release-name": "Helm release",
}


def writers_of(stateful_set: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a StatefulSet's writers: its controller, the tools that mark objects, the owners of template fields.

    Sources are ``ownerReferences``, the tools' labels and annotations,
    and ``managedFields`` (owners of ``spec.template`` or a field below it).
    """
    metadata = stateful_set["metadata"]
    owners = entries(metadata, "ownerReferences")
    writers = [f"owner {owner['kind']}/{owner['name']}" for owner in owners if owner.get("controller")]
    marks = {**section(metadata, "labels"), **section(metadata, "annotations")}
    writers += [f"{tool} {marks[mark]}" for mark, tool in _MARKS.items() if mark in marks]
    managers = {str(entry.get("manager")) for entry in entries(metadata, "managedFields") if _owns_template(entry)}
    writers += [f"field manager {name}" for name in sorted(managers - {"kraftbridge"})]
    return tuple(dict.fromkeys(writers))


def _owns_template(entry: Mapping[str, Any]) -> bool:
    return not entry.get("subresource") and "f:template" in section(entry, "fieldsV1", "f:spec")


def _storage_class(obj: Object) -> StorageClass:
    metadata = obj["metadata"]
    return StorageClass(metadata["name"], section(metadata, "annotations").get(_DEFAULT_CLASS) == "true")


def _budget(obj: Object, stateful_set: str) -> Budget:
    status = section(obj, "status")
    return Budget(
        name=obj["metadata"]["name"],
        stateful_set=stateful_set,
        disruptions_allowed=status.get("disruptionsAllowed", 0),
        expected_pods=status.get("expectedPods", 0),
        healthy_pods=status.get("currentHealthy", 0),
        desired_healthy=status.get("desiredHealthy", 0),
        up_to_date=status.get("observedGeneration", 0) >= obj["metadata"].get("generation", 0),
    )


def _attempt(look: Callable[[], T]) -> T | Unobserved:
    try:
        return look()
    except ObservationError as error:
        return Unobserved(error.source, error.reason)
    except (ValueError, KeyError, TypeError) as error:
        return Unobserved("an object of the API server", f"it cannot be parsed: {type(error).__name__}: {error}")


def _requests(pod: Object) -> dict[str, int]:
    """Return what the scheduler counts for a pod; init containers run one by one, before the others."""
    spec = pod["spec"]
    together = [wholes(section(c, "resources", "requests")) for c in spec.get("containers", [])]
    alone = [wholes(section(c, "resources", "requests")) for c in spec.get("initContainers", [])]
    overhead = wholes(spec.get("overhead"))

    def total(resource: str) -> int:
        running = sum(requests.get(resource, 0) for requests in together)
        most = max([running, *(requests.get(resource, 0) for requests in alone)])
        return most + overhead.get(resource, 0)

    return {"pods": 1, "cpu": total("cpu"), "memory": total("memory")}


def _room(node: Object, used: Mapping[str, int]) -> Room:
    allocatable = wholes(section(node, "status", "allocatable"))
    spec = section(node, "spec")
    return Room(
        node=node["metadata"]["name"],
        labels=section(node, "metadata", "labels"),
        taints=tuple(taint for taint in entries(spec, "taints") if taint.get("effect") in _AWAY),
        usable=workloads.takes_pods(node),
        cpu=allocatable.get("cpu", 0) - used.get("cpu", 0),
        memory=allocatable.get("memory", 0) - used.get("memory", 0),
        pods=allocatable.get("pods", 0) - used.get("pods", 0),
    )


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector matches.

    An empty selector of a PodDisruptionBudget (``policy/v1``) matches every pod, a missing one none.
    """
    if selector is None:
        return False
    wanted = section(selector, "matchLabels")
    expressions = entries(selector, "matchExpressions")
    return wanted.items() <= labels.items() and all(_meets(expression, labels) for expression in expressions)


def _meets(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value = labels.get(expression["key"])
    values = entries(expression, "values")
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case _:
            return value is None
