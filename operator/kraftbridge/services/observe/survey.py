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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, TypeVar

from kubernetes.utils.quantity import parse_quantity

from kraftbridge.builders import brokers as overlays
from kraftbridge.builders import controllers as quorum
from kraftbridge.builders import names
from kraftbridge.builders.brokers import parse_properties
from kraftbridge.builders.verification import (
    JOB_MEMORY,
    SPARK_API_VERSION,
    heap_mebibytes,
    job_limit_mebibytes,
    overhead_mebibytes,
)
from kraftbridge.config import Settings
from kraftbridge.constants import LABEL_MIGRATION
from kraftbridge.credentials import CERTIFICATE_KEYS, listener_problems
from kraftbridge.exceptions import ActionError, ActionRefusedError, InvalidSpecError, ObservationError
from kraftbridge.models.observation import NOT_NEEDED, Unobserved
from kraftbridge.models.phase import BrokerMode, ControllerMode, Phase
from kraftbridge.models.spec import MigrationSpec, Runner
from kraftbridge.models.status import MigrationStatus, before_secrets, controllers_name, rendered_spec
from kraftbridge.models.survey import (
    BrokerSetting,
    Budget,
    Capacity,
    ControllersDemand,
    Demand,
    Limit,
    LoginTrial,
    Quota,
    RefusedChange,
    Right,
    Room,
    StorageClass,
    Survey,
    ZooKeeperUsers,
)
from kraftbridge.phases.draft import Identity
from kraftbridge.services.clients import (
    ClusterClients,
    controllers_zookeeper_identities,
    listener_data,
    qualified_addresses,
    secret_text,
)
from kraftbridge.services.facts import Facts
from kraftbridge.services.observe.inter_broker import Controllers, LoginTrials
from kraftbridge.storage.ports import KubernetesPort, Object


def controllers_demand(spec: MigrationSpec, facts: quorum.ControllersFacts) -> ControllersDemand:
    """Return the resources that the controllers' pods request.

    Raises
    ------
    ObservationError
        A quantity in ``spec.controllers`` cannot be parsed.
    """
    objects = quorum.controllers_objects(spec, facts, ControllerMode.MIGRATION, format_allowed=True)
    wanted = next(o["spec"] for o in objects if o["kind"] == "StatefulSet")
    pod = wanted["template"]["spec"]
    (claim,) = wanted["volumeClaimTemplates"]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    try:
        return ControllersDemand(
            pods=wanted["replicas"],
            containers=tuple(_container_demand(c) for c in pod["containers"]),
            init_containers=tuple(_container_demand(c) for c in pod["initContainers"]),
            storage_bytes=whole("storage", claim["spec"]["resources"]["requests"]["storage"]),
            node_selector=pod.get("nodeSelector", {}),
            tolerations=tuple(pod.get("tolerations", ())),
            apart=bool(((pod["affinity"] or {}).get("podAntiAffinity") or {}).get(required)),
        )
    except ValueError as error:
        raise ObservationError("spec.controllers", str(error)) from error


def run_demand(spec: MigrationSpec, runner: Runner) -> tuple[Demand, ...]:
    """Return the resources that the pods of one run request: driver and executors, or the Job's only pod.

    Spark sets heap and overhead (``overhead_mebibytes``) as request and limit of memory.
    """
    verification = spec.verification
    cpu = whole("cpu", verification.core_request)
    most = None if verification.core_limit is None else whole("cpu", verification.core_limit)
    if runner is Runner.JOB:
        limit = job_limit_mebibytes(verification.driver_memory) << 20
        return (Demand("verifier", cpu, whole("memory", JOB_MEMORY), most, limit),)

    def pod(name: str, heap: str, *, alone: bool = False) -> Demand:
        total = (heap_mebibytes(heap) + overhead_mebibytes(heap, alone=alone)) << 20
        return Demand(name, cpu, total, most, total)

    executors = (pod(f"executor {i}", verification.executor_memory) for i in range(1, verification.executors + 1))
    return (pod("driver", verification.driver_memory, alone=verification.executors == 0), *executors)


def _container_demand(container: dict[str, Any]) -> Demand:
    resources = container.get("resources") or {}
    requests = wholes(resources.get("requests"))
    limits = wholes(resources.get("limits"))
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
    cpu = resource == "cpu" or resource.endswith(".cpu")
    return math.ceil(exact * (1000 if cpu else 1))


def wholes(resources: Mapping[str, Any] | None) -> dict[str, int]:
    """Return a resource list (``requests``, ``allocatable``, ``hard``) in whole numbers."""
    return {name: whole(name, text) for name, text in (resources or {}).items()}


_APPLY: Final = ("get", "create", "patch")
"""Server-side apply of an object that may not exist yet."""

_ALWAYS: Final[dict[tuple[str, str, str], tuple[str, ...]]] = {
    ("kraftbridge.dev", "kafkamigrations", "status"): ("patch",),
    ("apps", "statefulsets", ""): (*_APPLY, "list", "delete"),
    ("", "pods", ""): ("get", "list", "create", "patch", "delete"),
    ("", "pods", "eviction"): ("create",),
    ("", "pods", "log"): ("get",),
    ("", "services", ""): _APPLY,
    ("", "configmaps", ""): (*_APPLY, "list", "delete"),
    ("", "secrets", ""): _APPLY,
    ("", "serviceaccounts", ""): ("get",),
    ("", "persistentvolumeclaims", ""): ("get", "list", "create"),
    ("policy", "poddisruptionbudgets", ""): (*_APPLY, "list"),
    ("networking.k8s.io", "networkpolicies", ""): _APPLY,
    ("coordination.k8s.io", "leases", ""): ("get", "create", "patch", "delete"),
    ("", "events", ""): ("list",),
    ("events.k8s.io", "events", ""): ("create",),
    ("batch", "jobs", ""): ("get", "create", "delete"),
    ("rbac.authorization.k8s.io", "roles", ""): ("create", "delete"),
    ("rbac.authorization.k8s.io", "rolebindings", ""): ("create", "delete"),
}
_SPARK_OPERATOR: Final = ("sparkoperator.k8s.io", "sparkapplications", "")


def needed_rights(spec: MigrationSpec, *, spark_operator: bool) -> tuple[Right, ...]:
    """Return every right that a migration uses in its namespace."""
    spark = spark_operator and spec.verification.runner is Runner.SPARK_APPLICATION
    wanted = {**_ALWAYS, **({_SPARK_OPERATOR: ("get", "create", "delete")} if spark else {})}
    return tuple(
        Right(verb, group, resource, sub) for (group, resource, sub), verbs in wanted.items() for verb in verbs
    )


T = TypeVar("T")
SILENT_SECONDS: Final = 2.0
"""An answer that fails later than this was no answer."""
CAPACITY_EVERY_SECONDS: Final = 30.0
"""All pods of a cluster are the largest answer that the operator asks for; every migration in preflight needs it."""

ACCEPTED_FOR_SECONDS: Final = 300.0
"""How long an accepted dry run holds while the object stays the same.

The change itself goes through admission again.
"""
REFUSED_FOR_SECONDS: Final = 30.0
"""How long a refused dry run holds, so that a corrected policy is seen soon."""

_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_FINISHED = ("Succeeded", "Failed")
_AWAY = ("NoSchedule", "NoExecute")
_NOT_OURS = frozenset({"Terminating", "BestEffort", "CrossNamespacePodAffinity"})
"""Scopes of quotas that do not count long-running pods with requests."""


class Surveyor:
    """Creates a `Survey`, one part after the other."""

    def __init__(self, kubernetes: KubernetesPort, settings: Settings, facts: Facts) -> None:
        self._kubernetes = kubernetes
        self._facts = facts
        self._settings = settings
        self._rooms: dict[str | None, tuple[float, Capacity]] = {}
        self._tried: dict[str, tuple[float, str | None]] = {}
        """Time and refusal of each dry run, by a digest of its object."""
        self._logins = LoginTrials()
        self._rooms_lock = threading.Lock()
        """Held while the room is read, so that migrations do not read it at the same time.

        Nobody waits for it who knows an older answer.
        """

    def survey(
        self, identity: Identity, spec: MigrationSpec, status: MigrationStatus, clients: ClusterClients
    ) -> Survey:
        """Return the current survey; this changes nothing."""
        namespace = identity.namespace
        started = time.monotonic()
        visibility = _seen(clients.brokers.visibility)
        late = time.monotonic() - started > SILENT_SECONDS
        acls = _seen(clients.zookeeper.acls)
        silent = visibility if isinstance(visibility, Unobserved) and late else None
        # Brokers that did not answer are not asked again: each question would cost its whole time limit.
        brokers = silent if silent is not None else _seen(clients.brokers.broker_settings)
        return Survey(
            zookeeper=acls,
            zookeeper_users=acls if isinstance(acls, Unobserved) else _seen(lambda: self._users(identity, clients)),
            zookeeper_identities=controllers_zookeeper_identities(self._kubernetes, namespace, spec),
            visibility=visibility,
            reassigning=silent if silent is not None else _seen(clients.brokers.reassigning_partitions),
            brokers=brokers,
            listener_settings=_seen(lambda: self._listener_settings(identity, spec, status)),
            listener_problems=_seen(lambda: self._listener_problems(identity, spec, status)),
            demand=_seen(
                lambda: controllers_demand(
                    rendered_spec(spec, status), self._facts.unread_controllers(identity, spec, status)
                )
            ),
            verification=run_demand(spec, self._runner(spec)),
            storage_classes=_seen(self._storage_classes),
            quotas=_seen(lambda: self._quotas(namespace)),
            limits=_seen(lambda: self._limits(namespace)),
            capacity=_seen(lambda: self._capacity(namespace)),
            budgets=_seen(lambda: self._budgets(namespace, spec)),
            missing_rights=_seen(lambda: self._missing_rights(namespace, spec)),
            writers=_seen(lambda: self._writers(namespace, spec)),
            leftovers=_seen(lambda: self._leftovers(identity)),
            selecting=_seen(lambda: self._selecting(identity, spec)),
            refused=_seen(lambda: self._refused(identity, spec, status)),
            inter_broker=_seen(lambda: self._inter_broker(identity, spec, status, clients, brokers)),
        )

    def settings(
        self, identity: Identity, spec: MigrationSpec, status: MigrationStatus, clients: ClusterClients
    ) -> Survey:
        """Return the part of the survey that tells the brokers' settings, as a migration asks for it after preflight.

        This asks each broker one question, besides one for the list of brokers, and reads one Secret.
        Before the first broker restarts, it also asks what
        the principal may see, and the controllers' logins are tried (`inter_broker`).
        """
        brokers = _seen(clients.brokers.broker_settings)
        untouched = status.phase is Phase.PROVISIONING_QUORUM
        return Survey(
            zookeeper=NOT_NEEDED,
            zookeeper_users=NOT_NEEDED,
            zookeeper_identities=(),
            visibility=_seen(clients.brokers.visibility) if untouched else NOT_NEEDED,
            reassigning=NOT_NEEDED,
            brokers=brokers,
            listener_settings=_seen(lambda: self._listener_settings(identity, spec, status)),
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
            selecting=NOT_NEEDED,
            refused=NOT_NEEDED,
            inter_broker=_seen(lambda: self._inter_broker(identity, spec, status, clients, brokers))
            if untouched
            else {},
        )

    def _inter_broker(
        self,
        identity: Identity,
        spec: MigrationSpec,
        status: MigrationStatus,
        clients: ClusterClients,
        brokers: Mapping[int, tuple[BrokerSetting, ...] | Unobserved] | Unobserved,
    ) -> dict[int, LoginTrial]:
        if isinstance(brokers, Unobserved):
            return {}  # another finding reports it
        values = {b: {s.name: s for s in each} for b, each in brokers.items() if not isinstance(each, Unobserved)}
        try:
            secret = self._listener_secret(identity, spec, status)
        except ObservationError:
            return {}  # another finding reports it
        settings = spec.controllers.config | parse_properties(secret.get("listener.properties", ""))
        znodes = clients.zookeeper.observe().brokers

        def resolvable(address: str) -> str:
            return qualified_addresses(address, identity.namespace, identity.cluster_domain)[address]

        return self._logins.failed(clients.brokers, values, znodes, Controllers(settings, secret, resolvable))

    def _users(self, identity: Identity, clients: ClusterClients) -> ZooKeeperUsers:
        """Return who else uses ZooKeeper; pods of this migration (verification, rehearsal) are no others."""
        users = clients.zookeeper.users()
        if isinstance(users.clients, Unobserved) or not users.clients:
            return users
        pods = self._kubernetes.list("v1", "Pod", identity.namespace, f"{LABEL_MIGRATION}={identity.name}")
        ours = {ip["ip"] for pod in pods for ip in pod.get("status", {}).get("podIPs") or []}
        return replace(users, clients=tuple(address for address in users.clients if address not in ours))

    # ------------------------------------------------------------------------------------------- admission

    def _refused(self, identity: Identity, spec: MigrationSpec, status: MigrationStatus) -> tuple[RefusedChange, ...]:
        """Try every overlay of the brokers and the controllers' objects as a dry run; one refusal for each object.

        An object that was accepted is tried again after `ACCEPTED_FOR_SECONDS`,
        one that was refused after `REFUSED_FOR_SECONDS`.

        Raises
        ------
        ObservationError
            The API server gives no answer to one of them.
        """
        wanted: list[Object] = []
        for ref in spec.brokers.stateful_sets:
            stateful_set = self._kubernetes.get("apps/v1", "StatefulSet", identity.namespace, ref.name)
            original = None if stateful_set is None else self._facts.original(identity, spec, status, stateful_set)
            if original is None:
                continue  # another finding reports it
            facts = self._facts.brokers(identity, spec, status, original)
            for mode in (BrokerMode.MIGRATION, BrokerMode.KRAFT):
                properties = overlays.properties_object(spec, facts, identity.name, mode)
                wanted += [
                    *([properties] if properties is not None else []),
                    overlays.overlay(spec, facts, ref.name, mode),
                ]
        controllers = self._facts.controllers(identity, spec, status)
        wanted += quorum.controllers_objects(spec, controllers, ControllerMode.MIGRATION, format_allowed=True)
        for digest, (at, _) in list(self._tried.items()):
            if time.monotonic() - at > ACCEPTED_FOR_SECONDS:
                self._tried.pop(digest, None)
        found: dict[str, RefusedChange] = {}
        for obj in wanted:
            name = f"{obj['kind']}/{obj['metadata']['name']}"
            try:
                refusal = self._refusal(obj)
            except ActionError as error:
                raise ObservationError(name, str(error)) from error
            if refusal is not None:
                found.setdefault(name, RefusedChange(name, refusal))
        return tuple(found.values())

    def _refusal(self, obj: Object) -> str | None:
        now = time.monotonic()
        digest = hashlib.sha256(json.dumps(obj, sort_keys=True).encode()).hexdigest()
        at, refusal = self._tried.get(digest, (-math.inf, None))
        if now - at <= (ACCEPTED_FOR_SECONDS if refusal is None else REFUSED_FOR_SECONDS):
            return refusal
        try:
            self._kubernetes.try_apply(obj)
            refusal = None
        except ActionRefusedError as error:
            refusal = str(error)
        self._tried[digest] = (now, refusal)
        return refusal

    # -------------------------------------------------------------------------------------------- ourselves

    def _missing_rights(self, namespace: str, spec: MigrationSpec) -> tuple[Right, ...]:
        spark_operator = self._kubernetes.serves(SPARK_API_VERSION, "SparkApplication")
        wanted = needed_rights(spec, spark_operator=spark_operator)
        return tuple(right for right in wanted if not self._kubernetes.may(right, namespace))

    def _listener_settings(self, identity: Identity, spec: MigrationSpec, status: MigrationStatus) -> frozenset[str]:
        return frozenset(parse_properties(self._listener_secret(identity, spec, status).get("listener.properties", "")))

    def _listener_problems(self, identity: Identity, spec: MigrationSpec, status: MigrationStatus) -> tuple[str, ...]:
        listener = spec.controllers.listener
        name = controllers_name(identity.name, identity.uid, status.attempt)
        hosts = names.controller_hosts(name, identity.namespace, spec.controllers.node_ids, identity.cluster_domain)
        data = self._listener_secret(identity, spec, status)
        if not listener.generate:
            return listener_problems(data, listener.security_protocol, list(hosts.values()), datetime.now(UTC))
        given = set()
        if listener.secret_name is not None:
            given = CERTIFICATE_KEYS & secret_text(self._kubernetes, identity.namespace, listener.secret_name).keys()
        issued = self._facts.issued(identity, spec, status, datetime.now(UTC))
        if issued is None:
            raise ObservationError("Secret of the listener", "nothing is known of its certificates")
        problems = [
            *issued.problems,
            *(f"Secret {s.name} does not exist" for s in issued.secrets if not s.exists and not s.problem),
        ]
        twice = (
            f"Secret {listener.secret_name} has {', '.join(sorted(given))}, "
            "and spec.controllers.listener.generate asks the operator to issue them; remove one of the two"
        )
        return (*((twice,) if given else ()), *problems)

    def _listener_secret(self, identity: Identity, spec: MigrationSpec, status: MigrationStatus) -> dict[str, str]:
        name = controllers_name(identity.name, identity.uid, status.attempt)
        try:
            return listener_data(self._kubernetes, identity.namespace, name, spec)
        except InvalidSpecError as error:
            where = f"Secret {identity.namespace}/{spec.controllers.listener.secret_name}"
            raise ObservationError(where, str(error)) from error

    # ----------------------------------------------------------------------------------------- controllers

    def _runner(self, spec: MigrationSpec) -> Runner:
        """Return the runner of verifications; the one with the higher demand if it is unknown."""
        served = _seen(lambda: self._kubernetes.serves(SPARK_API_VERSION, "SparkApplication"))
        return Runner.JOB if served is False else spec.verification.runner

    def _storage_classes(self) -> tuple[StorageClass, ...]:
        found = self._kubernetes.list("storage.k8s.io/v1", "StorageClass", None)
        return tuple(
            StorageClass(c["metadata"]["name"], (c["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true")
            for c in found
        )

    def _quotas(self, namespace: str) -> tuple[Quota, ...]:
        quotas = []
        for found in self._kubernetes.list("v1", "ResourceQuota", namespace):
            scopes = {
                *found["spec"].get("scopes", []),
                *(e["scopeName"] for e in found["spec"].get("scopeSelector", {}).get("matchExpressions", [])),
            }
            if scopes & _NOT_OURS or "PriorityClass" in scopes:
                continue
            hard = wholes(found["spec"].get("hard"))
            used = wholes(found.get("status", {}).get("used"))
            quotas.append(
                Quota(found["metadata"]["name"], {name: most - used.get(name, 0) for name, most in hard.items()})
            )
        return tuple(quotas)

    def _limits(self, namespace: str) -> tuple[Limit, ...]:
        return tuple(
            Limit(
                name=found["metadata"]["name"],
                kind=entry["type"],
                minimum=wholes(entry.get("min")),
                maximum=wholes(entry.get("max")),
                default=wholes(entry.get("default")),
                default_request=wholes(entry.get("defaultRequest")),
            )
            for found in self._kubernetes.list("v1", "LimitRange", namespace)
            for entry in found["spec"].get("limits", [])
        )

    def _capacity(self, namespace: str) -> Capacity:
        """Return the room on the nodes.

        Migrations share it for `CAPACITY_EVERY_SECONDS`, and use the older one while it is read anew.
        """
        place = namespace if self._settings.watched_namespaces else None
        known = self._rooms.get(place)
        if known is not None and time.monotonic() - known[0] <= CAPACITY_EVERY_SECONDS:
            return known[1]
        if known is not None and not _is_too_old(known[0]) and self._rooms_lock.locked():
            return known[1]
        with self._rooms_lock:
            known = self._rooms.get(place)
            if known is None or time.monotonic() - known[0] > CAPACITY_EVERY_SECONDS:
                known = self._rooms[place] = (time.monotonic(), self._room_of(place))
            return known[1]

    def _room_of(self, place: str | None) -> Capacity:
        nodes = self._kubernetes.list("v1", "Node", None)
        used: dict[str, dict[str, int]] = {}
        for pod in self._kubernetes.list("v1", "Pod", place):
            node = pod.get("spec", {}).get("nodeName")
            phase = pod.get("status", {}).get("phase", "")
            if node and phase not in _FINISHED:
                sums = used.setdefault(node, {"cpu": 0, "memory": 0, "pods": 0})
                for resource, amount in _requests(pod).items():
                    sums[resource] += amount
        return Capacity(
            tuple(_room(n, used.get(n["metadata"]["name"], {})) for n in nodes), all_pods_seen=place is None
        )

    def _leftovers(self, identity: Identity) -> tuple[str, ...]:
        """Return the objects of earlier resources of the same name. Their names contain another UID.

        The operator has no right to list Secrets, so it looks for the names that belong to a StatefulSet or volume.
        """
        kinds = (("apps/v1", "StatefulSet"), ("v1", "PersistentVolumeClaim"), ("v1", "ConfigMap"))
        labelled = f"{LABEL_MIGRATION}={identity.name}"
        found = set[str]()
        uids = set[str]()
        for api_version, kind in kinds:
            for obj in self._kubernetes.list(api_version, kind, identity.namespace, labelled):
                uid = names.uid_in(obj["metadata"]["name"], identity.name)
                if uid and not identity.uid.startswith(uid):
                    found.add(f"{kind}/{obj['metadata']['name']}")
                    uids.add(uid)
        for secret in (name for uid in uids for name in before_secrets(identity.name, uid, 1)):
            if self._kubernetes.get("v1", "Secret", identity.namespace, secret) is not None:
                found.add(f"Secret/{secret}")
        return tuple(sorted(found))

    # --------------------------------------------------------------------------------------------- brokers

    def _budgets(self, namespace: str, spec: MigrationSpec) -> tuple[Budget, ...]:
        found = self._kubernetes.list("policy/v1", "PodDisruptionBudget", namespace)
        budgets = []
        for ref in spec.brokers.stateful_sets:
            stateful_set = self._kubernetes.get("apps/v1", "StatefulSet", namespace, ref.name)
            labels = (stateful_set or {}).get("spec", {}).get("template", {}).get("metadata", {}).get("labels") or {}
            for budget in found:
                if stateful_set is None or not _selects(budget["spec"].get("selector"), labels):
                    continue
                status = budget.get("status") or {}
                budgets.append(
                    Budget(
                        name=budget["metadata"]["name"],
                        stateful_set=ref.name,
                        disruptions_allowed=status.get("disruptionsAllowed", 0),
                        expected_pods=status.get("expectedPods", 0),
                        healthy_pods=status.get("currentHealthy", 0),
                        desired_healthy=status.get("desiredHealthy", 0),
                        up_to_date=status.get("observedGeneration", 0) >= budget["metadata"].get("generation", 0),
                    )
                )
        return tuple(budgets)

    def _selecting(self, identity: Identity, spec: MigrationSpec) -> tuple[str, ...]:
        """Return the objects whose selector matches a pod with the user's labels and ours, and none with ours alone."""
        if not spec.pods.labels:
            return ()
        ours = names.labels(identity.name)
        labels = {**spec.pods.labels, **ours}
        asked = [
            ("PodDisruptionBudget", o)
            for o in self._kubernetes.list("policy/v1", "PodDisruptionBudget", identity.namespace)
        ]
        for ref in spec.brokers.stateful_sets:
            found = self._kubernetes.get("apps/v1", "StatefulSet", identity.namespace, ref.name)
            asked += [("StatefulSet", found)] if found is not None else []
        selectors = {f"{kind}/{obj['metadata']['name']}": obj["spec"].get("selector") for kind, obj in asked}
        return tuple(name for name, s in selectors.items() if _selects(s, labels) and not _selects(s, ours))

    def _writers(self, namespace: str, spec: MigrationSpec) -> dict[str, tuple[str, ...]]:
        found = {}
        for ref in spec.brokers.stateful_sets:
            stateful_set = self._kubernetes.get("apps/v1", "StatefulSet", namespace, ref.name)
            if stateful_set is not None:
                found[ref.name] = writers_of(stateful_set)
        return found


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
    found = [f"owner {o['kind']}/{o['name']}" for o in metadata.get("ownerReferences") or [] if o.get("controller")]
    marks = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    found += [f"{tool} {marks[mark]}" for mark, tool in _MARKS.items() if mark in marks]
    managers = {
        str(entry.get("manager"))
        for entry in metadata.get("managedFields") or []
        if not entry.get("subresource") and "f:template" in (entry.get("fieldsV1") or {}).get("f:spec", {})
    }
    found += [f"field manager {name}" for name in sorted(managers - {"kraftbridge"})]
    return tuple(dict.fromkeys(found))


def _is_too_old(read_at: float) -> bool:
    return time.monotonic() - read_at > 2 * CAPACITY_EVERY_SECONDS


def _seen(look: Callable[[], T]) -> T | Unobserved:
    try:
        return look()
    except ObservationError as error:
        return Unobserved(error.source, error.reason)
    except (ValueError, KeyError, TypeError) as error:
        return Unobserved("an object of the API server", f"it cannot be parsed: {type(error).__name__}: {error}")


def _requests(pod: Object) -> dict[str, int]:
    """Return the resources that the scheduler counts for a pod.

    Init containers run one after the other, before the others.
    """

    def of(containers: Iterable[Object], resource: str) -> list[int]:
        return [wholes((c.get("resources") or {}).get("requests")).get(resource, 0) for c in containers]

    spec = pod["spec"]
    overhead = wholes(spec.get("overhead"))
    return {
        "pods": 1,
        **{
            r: max([sum(of(spec.get("containers", []), r)), *of(spec.get("initContainers", []), r)])
            + overhead.get(r, 0)
            for r in ("cpu", "memory")
        },
    }


def _room(node: Object, used: Mapping[str, int]) -> Room:
    allocatable = wholes(node.get("status", {}).get("allocatable"))
    conditions = {c["type"]: c["status"] for c in node.get("status", {}).get("conditions", [])}
    spec = node.get("spec") or {}
    return Room(
        node=node["metadata"]["name"],
        labels=node["metadata"].get("labels") or {},
        taints=tuple(t for t in spec.get("taints") or [] if t.get("effect") in _AWAY),
        usable=conditions.get("Ready") == "True" and not spec.get("unschedulable", False),
        cpu=allocatable.get("cpu", 0) - used.get("cpu", 0),
        memory=allocatable.get("memory", 0) - used.get("memory", 0),
        pods=allocatable.get("pods", 0) - used.get("pods", 0),
    )


def _selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector matches.

    An empty selector of a PodDisruptionBudget (``policy/v1``) matches every pod, a missing one none.
    """
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    return wanted.items() <= labels.items() and all(_meets(e, labels) for e in selector.get("matchExpressions") or [])


def _meets(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value = labels.get(expression["key"])
    values = expression.get("values") or []
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case _:
            return value is None
