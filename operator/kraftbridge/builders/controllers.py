"""The KRaft controllers' objects: Service, ConfigMaps, StatefulSet, NetworkPolicy, PodDisruptionBudget. Pure.

None of them carries an ownerReference: the quorum outlives the migration and the chart.

The ConfigMap with the configuration is immutable and named by its content, and the template names it: a pod has exactly
the configuration of its revision, also when its container restarts in the middle of a roll. Which controllers may
format a blank volume changes while they run, so that word is in a ConfigMap of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from kraftbridge.builders import names, pods
from kraftbridge.builders.broker_overlays import (
    SHORT_ADDRESS_CACHE,
    quorum_voters,
    render_properties,
    short_hash,
    with_listener,
)
from kraftbridge.constants import (
    ACL_AUTHORIZER,
    ANNOTATION_CONFIGURATION,
    CONTROLLER_LISTENER,
    CONTROLLER_LISTENER_PREFIX,
    CONTROLLER_PORT,
    FIND_KAFKA,
    LABEL_ROLE,
    LOG_SERVER_PORT,
    METRICS_PORT,
    NO_KAFKA,
    STANDARD_AUTHORIZER,
)
from kraftbridge.models.broker_settings import COPIED
from kraftbridge.models.objects import section
from kraftbridge.models.phase import ControllerMode
from kraftbridge.models.rehearsal import BEYOND_HEAP_BYTES, heap_bytes, heap_options
from kraftbridge.models.spec import ControllersSpec, MigrationSpec
from kraftbridge.models.status import RestoredLog, controllers_format

Objects = list[dict[str, Any]]

DATA = "/data"
LISTENER_SECRET = "/etc/kraftbridge-listener"  # noqa: S105 - a mount path
ZOOKEEPER_SECRET = "/etc/kraftbridge-zookeeper"  # noqa: S105 - a mount path
CREDENTIALS = "/etc/kraftbridge-credentials"
"""Files that the init container writes from certificates (`kraftbridge.pods.credentials`), in memory."""
FORMAT = "/etc/kraftbridge-format"
WORD_KEY = "word"
"""Key of the ConfigMap that says which controllers may format a blank volume: ``allowed``, ``refused`` or a node id."""
LOG_DIR = f"{DATA}/kafka"
KAFKA_CONTAINER = "kafka"
CONFIGURATION_VOLUME = "config"
"""Volume of the pods with the ConfigMap of their configuration."""
METRICS_PORT_NAME = "metrics"
"""Port of the Kafka container that the metrics agent opens."""
_LISTENER_SSL = f"{CONTROLLER_LISTENER_PREFIX}ssl"
UID = 1000
"""User of the official image (``appuser``); the log server shares the volume and runs as the same user."""

KAFKA_CPU = "100m"
"""CPU request of a controller where ``spec.controllers.resources`` states none:
without a request a busy node starves it."""
HELPER_RESOURCES: Mapping[str, Any] = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}}
"""Resources of the log server and of the init containers.
A ResourceQuota counts every container, init containers too."""

ISOLATED_SETTINGS = {"broker.session.timeout.ms": "3600000"}
"""Settings of controllers in mode `ControllerMode.ISOLATED`.
No broker reaches them, and none must lose its leaderships for it: by default the controller fences a broker after 9 s
without a heartbeat (``ReplicationControlManager.maybeFenceReplicas``)."""

JMX_RULES = """lowercaseOutputName: false
includeObjectNames:
- "kafka.controller:*"
- "kafka.server:type=raft-metrics"
- "kafka.server:type=raft-metrics,*"
- "kafka.server:type=MetadataLoader,*"
- "kafka.server:type=broker-metadata-metrics"
"""

# One backslash at the end of a line joins it with the next one; the script itself has it as two.
_BEGIN = """set -eu
@FIND_KAFKA@
if [ -z "$tools" ]; then echo "@NO_KAFKA@; set spec.controllers.image to one of Kafka 3.9"; exit 1; fi
# The image's own directory of logs may belong to another user.
export LOG_DIR=/tmp/kafka-logs
# A pod keeps what it began with: a restarted container must not try a Secret that is being rolled out.
own=/tmp/configuration
if [ ! -d $own ]; then
  rm -rf $own.new
  mkdir $own.new
  cp /etc/kraftbridge/controller.properties $own.new
  if [ -f /etc/kraftbridge-listener/listener.properties ]; then
    cp /etc/kraftbridge-listener/listener.properties $own.new
  fi
  mv $own.new $own
fi
"""
_KEY_STORES = f"""# Kafka reads key and certificates from one file. A pod keeps those with which it began, as above.
written={CREDENTIALS}/listener
secret={LISTENER_SECRET}
if [ -f $secret/tls.crt ] && [ ! -d $written ]; then
  rm -rf $written.new
  (
    umask 077
    mkdir $written.new
    {{ cat $secret/tls.key; echo; cat $secret/tls.crt; }} > $written.new/keystore.pem
    cat $secret/ca.crt > $written.new/truststore.pem
    {{
      echo {_LISTENER_SSL}.keystore.type=PEM
      echo {_LISTENER_SSL}.keystore.location=$written/keystore.pem
      echo {_LISTENER_SSL}.truststore.type=PEM
      echo {_LISTENER_SSL}.truststore.location=$written/truststore.pem
      @CLIENT_AUTH@
    }} > $written.new/listener.properties
  )
  mv $written.new $written
fi
"""
_PROPERTIES = """properties=/tmp/controller.properties
{ cat $own/controller.properties; echo "node.id=$NODE_ID"; } > $properties
if [ -n "${PASSWORD_ENCODER_SECRET:-}" ]; then
  # Properties.load takes a backslash for the beginning of an escape.
  printf 'password.encoder.secret=%s\\n' "$(printf '%s' "$PASSWORD_ENCODER_SECRET" | sed 's/\\\\/&&/g')" >> $properties
fi
# Of two lines for one setting the later one counts: listener.properties overrides what follows from the certificates.
for given in /etc/kraftbridge-credentials/listener $own; do
  if [ -f $given/listener.properties ]; then { cat $given/listener.properties; echo; } >> $properties; fi
done
"""
_ZOOKEEPER = """zookeeper=/etc/kraftbridge-zookeeper
if grep -q '^zookeeper.connect=' $properties; then
  umask 077
  if [ "$(cat $zookeeper/scheme 2>/dev/null)" = sasl ]; then
    # Kafka authenticates to ZooKeeper by JAAS (or x509) only; \
quotes and backslashes are escaped as the JAAS file asks for.
    escaped() { sed 's/[\\\\"]/\\\\&/g' "$1"; }
    printf 'Client {\\n  org.apache.zookeeper.server.auth.DigestLoginModule required\\n\
  username="%s"\\n  password="%s";\\n};\\n' \\
      "$(escaped $zookeeper/username)" "$(escaped $zookeeper/password)" > /tmp/zookeeper.jaas
    export KAFKA_OPTS="${KAFKA_OPTS:-} -Djava.security.auth.login.config=/tmp/zookeeper.jaas"
  fi
  if [ -f $zookeeper/ca.crt ]; then
    {
      echo zookeeper.ssl.client.enable=true
      echo zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty
      echo zookeeper.ssl.truststore.type=PEM
      echo zookeeper.ssl.truststore.location=$zookeeper/ca.crt
    } >> $properties
  fi
  keystore=/etc/kraftbridge-credentials/zookeeper/keystore.pem
  if [ -f $keystore ]; then
    { echo zookeeper.ssl.keystore.type=PEM; echo zookeeper.ssl.keystore.location=$keystore; } >> $properties
  fi
fi
"""
_FORMAT = """if [ ! -f @LOG_DIR@/meta.properties ]; then
  # A blank voter votes: once every voter was formatted, a blank volume waits for a person.
  while word=$(cat @FORMAT@/word); [ "$word" != allowed ] && [ "$word" != "$NODE_ID" ]; do
    echo "volume of controller $NODE_ID is blank and formatting is not allowed any more; see docs/operations.md"
    sleep 5
  done
  # A cluster id is base64 and may begin with a dash.
  "$tools/kafka-storage$ending" format --cluster-id="$CLUSTER_ID" --config $properties
fi
"""
_EXPORT = """export KAFKA_OPTS="${KAFKA_OPTS:-} $EXPORTER"
"""
_SERVE = """exec "$tools/kafka-server-start$ending" $properties
"""


def _script(*parts: str) -> str:
    text = "".join(parts)
    text = text.replace("@FIND_KAFKA@\n", FIND_KAFKA).replace("@NO_KAFKA@", NO_KAFKA)
    return text.replace("@LOG_DIR@", LOG_DIR).replace("@FORMAT@", FORMAT)


START = _script(_BEGIN, _PROPERTIES, _ZOOKEEPER, _FORMAT, _EXPORT, _SERVE)
"""Start script of the controllers' container."""
_CLEAN_START = _script(_BEGIN, _KEY_STORES, _PROPERTIES, _FORMAT, _SERVE)


def clean_start(protocol: str) -> str:
    """Return the start script of controllers without the operator's image, for a listener with this protocol.

    It writes what the init container ``credentials`` writes, from a key that is PKCS#8 already.
    """
    client_auth = f"      echo {_LISTENER_SSL}.client.auth=required\n" if protocol == "SSL" else ""
    return _CLEAN_START.replace("      @CLIENT_AUTH@\n", client_auth)


def listener_secrets(spec: MigrationSpec, controllers: str) -> tuple[str, ...]:
    """Return the Secrets of the controllers' listener: the user's, and the one that the operator issues.

    Of two values for one key the later one counts.
    """
    listener = spec.controllers.listener
    secrets = [listener.secret_name or ""]
    if listener.generate:
        secrets.append(names.issued_listener_secret(controllers))
    return tuple(filter(None, secrets))


@dataclass(frozen=True, slots=True)
class ControllersFacts:
    """Inputs of the controllers' objects."""

    namespace: str
    migration: str
    name: str
    cluster_domain: str
    cluster_id: str
    broker_settings: Mapping[str, str]
    """The user's own settings of the brokers."""
    operator_image: str
    operator_namespace: str
    broker_selectors: tuple[Mapping[str, Any], ...]
    """Label selectors of the brokers' StatefulSets, whole, for the NetworkPolicy:
    one that lost its terms would select every pod."""
    credentials: Mapping[str, str] = field(default_factory=dict)
    """Fingerprint of each Secret that the controllers read when they start, by name."""
    issued_principals: tuple[str, ...] = ()
    """Principals of the certificates or logins that the operator issues to the clients of the listener;
    empty if it issues none."""
    pod_defaults: pods.PodDefaults = field(default_factory=pods.PodDefaults)
    restored: RestoredLog | None = None
    """The kept copy from which the pods restore their volumes; None: they start from what is there."""
    minimum_batch_size: int | None = None
    """Least number of records in a batch of the copy, as a rehearsal calls for; None: Kafka's default."""
    clean: bool = False
    """Whether pods and ConfigMap are rendered without the operator's image."""
    cleaned: bool = False
    """Whether no pod has it any more, so that nobody connects to metrics agent and log server."""


def controller_settings(spec: MigrationSpec, facts: ControllersFacts, mode: ControllerMode) -> dict[str, str]:
    """Return the controllers' configuration without ``node.id`` and secrets.

    Notes
    -----
    KIP-866: with ``zookeeper.metadata.migration.enable`` and ``zookeeper.connect`` the quorum waits for the brokers;
    the first controller that becomes active without the flag ends the migration (``ActivationRecordsGenerator``).
    """
    protocol = spec.controllers.listener.security_protocol
    settings = dict(spec.controllers.config)
    copied = {name: facts.broker_settings.get(name) for name in COPIED}
    settings = {name: value for name, value in copied.items() if value} | settings
    settings |= {
        "process.roles": "controller",
        "controller.quorum.voters": quorum_voters(spec, facts.name, facts.namespace, facts.cluster_domain, mode.port),
        "controller.listener.names": CONTROLLER_LISTENER,
        "listeners": f"{CONTROLLER_LISTENER}://:{mode.port}",
        "listener.security.protocol.map": with_listener(
            facts.broker_settings.get("listener.security.protocol.map"), CONTROLLER_LISTENER, protocol
        ),
        "log.dirs": LOG_DIR,
    }
    authorizer = facts.broker_settings.get("authorizer.class.name", "").strip()
    if authorizer:
        settings["authorizer.class.name"] = STANDARD_AUTHORIZER if authorizer == ACL_AUTHORIZER else authorizer
    if spec.controllers.super_users:
        settings["super.users"] = ";".join(spec.controllers.super_users)
    if spec.controllers.listener.generate and protocol == "SSL":
        # The listener's own rule keeps the subject as it is, whatever rules the brokers have.
        settings[f"{CONTROLLER_LISTENER_PREFIX}ssl.principal.mapping.rules"] = "DEFAULT"
    if facts.issued_principals:
        # Without ACLs a new quorum lets only super users in.
        principals = [settings.get("super.users", ""), *facts.issued_principals]
        settings["super.users"] = ";".join(filter(None, principals))
    if mode.migrates:
        settings["zookeeper.connect"] = spec.zookeeper.connect
        settings["zookeeper.metadata.migration.enable"] = "true"
        if facts.minimum_batch_size is not None:
            settings.setdefault("zookeeper.metadata.migration.min.batch.size", str(facts.minimum_batch_size))
    else:
        settings = {k: v for k, v in settings.items() if not k.startswith("zookeeper.")}
    if mode is ControllerMode.ISOLATED:
        settings |= ISOLATED_SETTINGS
    return settings


def configuration(spec: MigrationSpec, facts: ControllersFacts, mode: ControllerMode) -> str:
    """Return the value of the configuration annotation.

    The template names settings and scripts by their content.
    """
    parts = (facts.cluster_id, _pod_template(spec, facts, mode), sorted(facts.credentials.items()))
    return f"{mode}-{short_hash(parts)}"


def _start_script(spec: MigrationSpec, facts: ControllersFacts) -> str:
    return clean_start(spec.controllers.listener.security_protocol) if facts.clean else START


def controllers_objects(
    spec: MigrationSpec,
    facts: ControllersFacts,
    mode: ControllerMode,
    *,
    format_allowed: bool,
    reformat: int | None = None,
) -> Objects:
    """Return the objects of the quorum, in the order in which they are applied; the StatefulSet last.

    Parameters
    ----------
    spec, facts, mode
        What they are rendered from.
    format_allowed
        Whether every controller may format a blank volume.
    reformat
        Node id of the one controller that may, None for no other.
    """
    return [
        _service(facts),
        _format(facts, _format_word(reformat, format_allowed=format_allowed)),
        _configuration(spec, facts, mode),
        _network_policy(facts),
        _disruption_budget(spec, facts),
        _stateful_set(spec, facts, mode),
    ]


def chosen(objects: Objects, only: Collection[str]) -> Objects:
    """Return the objects of this ``Kind/name``, all of them if none is named.

    A configuration that is none of them has a content that this release does not render, so nobody can create it again:
    the template has to name another one, and all of them are returned.
    """
    rendered = {f"{obj['kind']}/{obj['metadata']['name']}": obj for obj in objects}
    if any(each.startswith("ConfigMap/") and each not in rendered for each in only):
        return objects
    return [obj for each, obj in rendered.items() if not only or each in only]


def is_same(configuration: Mapping[str, Any], present: Mapping[str, Any]) -> bool:
    """Return whether a live ConfigMap is the immutable one that was rendered."""
    is_immutable = bool(present.get("immutable"))
    return is_immutable and present.get("data") == configuration["data"] and not present.get("binaryData")


def _meta(facts: ControllersFacts, name: str) -> dict[str, Any]:
    return {"name": name, "namespace": facts.namespace, "labels": names.labels(facts.migration)}


def _selector(facts: ControllersFacts) -> dict[str, str]:
    return names.labels(facts.migration, **{LABEL_ROLE: "controller"})


def _service(facts: ControllersFacts) -> dict[str, Any]:
    ports = [{"name": "controller", "port": CONTROLLER_PORT}]
    if not facts.cleaned:
        ports += [{"name": "metrics", "port": METRICS_PORT}, {"name": "log-server", "port": LOG_SERVER_PORT}]
    # A voter whose peers are not in DNS yet flaps through elections: addresses are published before readiness.
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _meta(facts, facts.name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": _selector(facts),
            "ports": ports,
        },
    }


def _format_word(reformat: int | None, *, format_allowed: bool) -> str:
    """Return the word that the start script reads: which controllers may format a blank volume."""
    if format_allowed:
        return "allowed"
    return "refused" if reformat is None else str(reformat)


def _format(facts: ControllersFacts, word: str) -> dict[str, Any]:
    """Return the ConfigMap with the word. Mutable: the kubelet brings a new word to the pods that wait for it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _meta(facts, controllers_format(facts.name)),
        "data": {WORD_KEY: word},
    }


def _configuration_data(spec: MigrationSpec, facts: ControllersFacts, mode: ControllerMode) -> dict[str, str]:
    rules = {} if facts.clean else {"jmx.yml": JMX_RULES}
    return {
        "controller.properties": render_properties(controller_settings(spec, facts, mode)),
        **rules,
        "start.sh": _start_script(spec, facts),
    }


def _configuration_name(spec: MigrationSpec, facts: ControllersFacts, mode: ControllerMode) -> str:
    data = _configuration_data(spec, facts, mode)
    return names.controllers_configuration(facts.name, mode, data, clean=facts.clean)


def _configuration(spec: MigrationSpec, facts: ControllersFacts, mode: ControllerMode) -> dict[str, Any]:
    # The role is that of the pods: one selector finds both.
    metadata = {**_meta(facts, _configuration_name(spec, facts, mode)), "labels": _selector(facts)}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "immutable": True,
        "data": _configuration_data(spec, facts, mode),
    }


def _network_policy(facts: ControllersFacts) -> dict[str, Any]:
    operator = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": facts.operator_namespace}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "kraftbridge"}},
    }
    verifier = {"podSelector": {"matchLabels": {LABEL_ROLE: "verifier"}}}
    controllers = {"podSelector": {"matchLabels": _selector(facts)}}
    brokers = [{"podSelector": dict(selector)} for selector in facts.broker_selectors]
    clients: Objects = [*brokers, controllers, operator]
    of_helpers: Objects = []
    if not facts.cleaned:
        clients.append(verifier)
        of_helpers = [
            {
                "from": [controllers, operator],
                "ports": [{"port": ControllerMode.ISOLATED.port, "protocol": "TCP"}],
            },
            {
                "from": [operator, verifier],
                "ports": [{"port": METRICS_PORT, "protocol": "TCP"}, {"port": LOG_SERVER_PORT, "protocol": "TCP"}],
            },
        ]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _meta(facts, facts.name),
        "spec": {
            "podSelector": {"matchLabels": _selector(facts)},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": clients, "ports": [{"port": CONTROLLER_PORT, "protocol": "TCP"}]}, *of_helpers],
        },
    }


def _disruption_budget(spec: MigrationSpec, facts: ControllersFacts) -> dict[str, Any]:
    # By name: two budgets on one pod, that of an earlier attempt and this one, make the Eviction API refuse it (500).
    own = [f"{facts.name}-{node_id}" for node_id in spec.controllers.node_ids]
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _meta(facts, facts.name),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {
                "matchLabels": _selector(facts),
                "matchExpressions": [
                    {"key": "statefulset.kubernetes.io/pod-name", "operator": "In", "values": own},
                ],
            },
        },
    }


def _pod_template(spec: MigrationSpec, facts: ControllersFacts, mode: ControllerMode) -> dict[str, Any]:
    controllers = spec.controllers
    volumes: Objects = [
        {"name": CONFIGURATION_VOLUME, "configMap": {"name": _configuration_name(spec, facts, mode)}},
        # Optional: without the word nothing is formatted, and a controller that has formatted its volume needs none.
        {"name": "format", "configMap": {"name": controllers_format(facts.name), "optional": True}},
    ]
    if not facts.clean:
        volumes.append({"name": "agent", "emptyDir": {}})
    volumes.append({"name": "tmp", "emptyDir": {}})
    if not facts.clean:
        volumes.append({"name": "log-server", "secret": {"secretName": names.log_access_secret(facts.name)}})
    if controllers.listener.generate:
        sources = [{"secret": {"name": name}} for name in listener_secrets(spec, facts.name)]
        volumes.append({"name": "listener", "projected": {"sources": sources}})
    elif controllers.listener.secret_name:
        volumes.append({"name": "listener", "secret": {"secretName": controllers.listener.secret_name}})
    if _reads_zookeeper(spec, facts):
        # Optional: after the migration the Secret may go, and the quorum stays.
        volumes.append({"name": "zookeeper", "secret": {"secretName": spec.zookeeper.secret_name, "optional": True}})
    init_containers = [] if facts.clean else [_agent_container(spec, facts)]
    if _reads_certificates(spec, facts):
        volumes.append({"name": "credentials", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}})
        if not facts.clean:
            init_containers.append(_credentials_container(spec, facts))
    if facts.restored is not None:
        volumes.append(pods.kept_copy_volume(facts.restored.secret, facts.restored.parts))
        init_containers.append(_restoring_container(spec, facts, facts.restored))
    helpers = [] if facts.clean else [_log_server_container(spec, facts)]
    spec_of_pod = {
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 60,
        "securityContext": pod_security_context(),
        "affinity": pods.spread_over_nodes(_selector(facts)),
        "topologySpreadConstraints": pods.spread_over_zones(_selector(facts)),
        **({"initContainers": init_containers} if init_containers else {}),
        "containers": [_kafka_container(spec, facts, mode), *helpers],
        "volumes": volumes,
    }
    template = {"metadata": {"labels": _selector(facts)}, "spec": spec_of_pod}
    return pods.with_settings(template, pods.completed(spec.pods, facts.pod_defaults), controllers)


def _stateful_set(spec: MigrationSpec, facts: ControllersFacts, mode: ControllerMode) -> dict[str, Any]:
    controllers = spec.controllers
    template = _pod_template(spec, facts, mode)
    annotations = template["metadata"].setdefault("annotations", {})
    annotations[ANNOTATION_CONFIGURATION] = configuration(spec, facts, mode)
    claim_storage: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": controllers.storage.size}},
    }
    if controllers.storage.storage_class_name:
        claim_storage["storageClassName"] = controllers.storage.storage_class_name
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": _meta(facts, facts.name),
        "spec": {
            "replicas": controllers.replicas,
            "serviceName": facts.name,
            # The pod's ordinal is its node id, without any arithmetic.
            "ordinals": {"start": controllers.first_node_id},
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
            "selector": {"matchLabels": _selector(facts)},
            "template": template,
            "volumeClaimTemplates": [
                {"metadata": {"name": "data", "labels": names.labels(facts.migration)}, "spec": claim_storage}
            ],
        },
    }


def pod_security_context() -> dict[str, Any]:
    """Return the security context of a pod whose containers share volumes as one user.

    It meets the restricted Pod Security Standard.
    """
    return {
        "runAsUser": UID,
        "runAsGroup": UID,
        "fsGroup": UID,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def _kafka_container(spec: MigrationSpec, facts: ControllersFacts, mode: ControllerMode) -> dict[str, Any]:
    controllers = spec.controllers
    env: Objects = [
        _node_id(),
        {"name": "CLUSTER_ID", "value": facts.cluster_id},
        {"name": "KAFKA_HEAP_OPTS", "value": controllers.heap_options or heap_options(None)},
        {"name": "JAVA_TOOL_OPTIONS", "value": SHORT_ADDRESS_CACHE},
    ]
    if controllers.password_encoder_secret is not None:
        key = controllers.password_encoder_secret
        env.append(
            {"name": "PASSWORD_ENCODER_SECRET", "valueFrom": {"secretKeyRef": {"name": key.name, "key": key.key}}}
        )
    mounts: Objects = [
        {"name": "data", "mountPath": DATA},
        {"name": CONFIGURATION_VOLUME, "mountPath": "/etc/kraftbridge", "readOnly": True},
        {"name": "format", "mountPath": FORMAT, "readOnly": True},
    ]
    if not facts.clean:
        mounts.append({"name": "agent", "mountPath": "/opt/kraftbridge-agent", "readOnly": True})
    mounts.append({"name": "tmp", "mountPath": "/tmp"})  # noqa: S108 - an emptyDir of the pod
    mounts += _secret_mounts(spec, facts)
    if _reads_certificates(spec, facts):
        written_here = {} if facts.clean else {"readOnly": True}
        mounts.append({"name": "credentials", "mountPath": CREDENTIALS, **written_here})
    # The agent is an argument of the server only: the storage tool would want the same port.
    start = (
        f'export EXPORTER="-javaagent:/opt/kraftbridge-agent/agent.jar={METRICS_PORT}:/etc/kraftbridge/jmx.yml"; . '
        "/etc/kraftbridge/start.sh"
    )
    command = ["bash", "/etc/kraftbridge/start.sh"] if facts.clean else ["bash", "-c", start]
    ports: Objects = [{"name": "controller", "containerPort": mode.port}]
    if not facts.clean:
        ports.append({"name": METRICS_PORT_NAME, "containerPort": METRICS_PORT})
    return {
        "name": KAFKA_CONTAINER,
        "image": controllers.image,
        "imagePullPolicy": controllers.image_pull_policy,
        "command": command,
        "ports": ports,
        "env": env,
        "resources": _kafka_resources(controllers),
        # Ready says only that the port is open; whether there is a quorum is the operator's to judge.
        "readinessProbe": {"tcpSocket": {"port": mode.port}, "periodSeconds": 2},
        # The pod's status then holds the reason of its end, such as a full disk, and the operator may read it there.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": RESTRICTED,
        "volumeMounts": mounts,
    }


def _kafka_resources(controllers: ControllersSpec) -> dict[str, Any]:
    """Return ``resources`` with requests where the user states neither a request nor a limit.

    Kubernetes would make a request from a limit.
    """
    requests = dict(section(controllers.resources, "requests"))
    stated = {*requests, *section(controllers.resources, "limits")}
    heap = heap_bytes(controllers.heap_options or heap_options(None))
    if "cpu" not in stated:
        requests["cpu"] = KAFKA_CPU
    if "memory" not in stated and heap is not None:
        requests["memory"] = f"{(heap + BEYOND_HEAP_BYTES) >> 20}Mi"
    return {**controllers.resources, "requests": requests}


def _agent_container(spec: MigrationSpec, facts: ControllersFacts) -> dict[str, Any]:
    return {
        "name": "agent",
        "image": facts.operator_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["cp", "/opt/kraftbridge/jmx_prometheus_javaagent.jar", "/opt/kraftbridge-agent/agent.jar"],
        "resources": _helper_resources(spec),
        "securityContext": RESTRICTED,
        "volumeMounts": [{"name": "agent", "mountPath": "/opt/kraftbridge-agent"}],
    }


def _reads_zookeeper(spec: MigrationSpec, facts: ControllersFacts) -> bool:
    """Return whether the pods have the Secret for ZooKeeper. In mode `ControllerMode.FINAL` nothing reads it."""
    return bool(spec.zookeeper.secret_name) and not facts.clean


def _reads_certificates(spec: MigrationSpec, facts: ControllersFacts) -> bool:
    return spec.controllers.listener.has_files or _reads_zookeeper(spec, facts)


def _secret_mounts(spec: MigrationSpec, facts: ControllersFacts) -> Objects:
    mounts: Objects = []
    if spec.controllers.listener.has_files:
        mounts.append({"name": "listener", "mountPath": LISTENER_SECRET, "readOnly": True})
    if _reads_zookeeper(spec, facts):
        mounts.append({"name": "zookeeper", "mountPath": ZOOKEEPER_SECRET, "readOnly": True})
    return mounts


def _credentials_container(spec: MigrationSpec, facts: ControllersFacts) -> dict[str, Any]:
    arguments = ["--directory", CREDENTIALS]
    if spec.controllers.listener.has_files:
        arguments += ["--listener", LISTENER_SECRET, "--protocol", spec.controllers.listener.security_protocol]
    if spec.zookeeper.secret_name:
        arguments += ["--zookeeper", ZOOKEEPER_SECRET]
    return {
        "name": "credentials",
        "image": facts.operator_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-m", "kraftbridge.pods.credentials", *arguments],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": _helper_resources(spec),
        "securityContext": {**RESTRICTED, "readOnlyRootFilesystem": True},
        "volumeMounts": [*_secret_mounts(spec, facts), {"name": "credentials", "mountPath": CREDENTIALS}],
    }


def _restoring_container(spec: MigrationSpec, facts: ControllersFacts, restored: RestoredLog) -> dict[str, Any]:
    """Return the init container that puts the kept copy in the place of what the volume holds, once for each volume."""
    voters = ",".join(map(str, spec.controllers.node_ids))
    return {
        "name": "restore",
        "image": facts.operator_image,
        "imagePullPolicy": "IfNotPresent",
        "command": [
            "python", "-m", "kraftbridge.pods.restore", "volume",
            "--copy", pods.KEPT_COPY, "--sha256", restored.digest, "--directory", LOG_DIR,
            "--id", restored.id, "--epoch", str(restored.epoch), "--voters", voters, "--node-id", "$(NODE_ID)",
            # A cluster id may begin with a dash.
            "--cluster-id=$(CLUSTER_ID)",
        ],
        "env": [_node_id(), {"name": "CLUSTER_ID", "value": facts.cluster_id}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": _helper_resources(spec),
        "securityContext": {**RESTRICTED, "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "data", "mountPath": DATA}, pods.kept_copy_mount()],
    }  # fmt: skip


def _node_id() -> dict[str, Any]:
    field = {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}
    return {"name": "NODE_ID", "valueFrom": {"fieldRef": field}}


def _helper_resources(spec: MigrationSpec) -> dict[str, Any]:
    return dict(spec.pods.helper_resources or HELPER_RESOURCES)


def _log_server_container(spec: MigrationSpec, facts: ControllersFacts) -> dict[str, Any]:
    secret = "/etc/log-server"  # noqa: S105 - a mount path
    return {
        "name": "log-server",
        "image": facts.operator_image,
        "imagePullPolicy": "IfNotPresent",
        "command": [
            "python", "-m", "kraftbridge.pods.logserver", "--directory", LOG_DIR, "--port", str(LOG_SERVER_PORT),
            "--certificate", f"{secret}/tls.crt", "--key", f"{secret}/tls.key", "--token-file", f"{secret}/token",
        ],
        "ports": [{"name": "log-server", "containerPort": LOG_SERVER_PORT}],
        "resources": _helper_resources(spec),
        "securityContext": {**RESTRICTED, "readOnlyRootFilesystem": True},
        "volumeMounts": [
            {"name": "data", "mountPath": DATA, "readOnly": True},
            {"name": "log-server", "mountPath": secret, "readOnly": True},
        ],
    }  # fmt: skip
