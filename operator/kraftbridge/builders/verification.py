"""A verification's objects: ConfigMap with the request, and a SparkApplication or a Job that answers there. Pure.

A driver without executors listens on loopback only (``kraftbridge.verification.run``).
With executors, driver and executors share a secret of the migration, and all that they send or spill is encrypted.
A NetworkPolicy admits only pods of the same run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kraftbridge.builders import names, pods
from kraftbridge.builders.controllers import listener_secrets
from kraftbridge.constants import (
    API_VERSION,
    CONTROLLER_PORT,
    KIND,
    LABEL_ROLE,
    LABEL_RUN,
    LOG_SERVER_PORT,
    RBAC_API_VERSION,
    SPARK_API_VERSION,
    SPARK_JAVA_OPTIONS,
)
from kraftbridge.models.phase import Phase
from kraftbridge.models.report import (
    REQUEST_KEY,
    CompareServed,
    ConfigMapReference,
    Profile,
    VerificationRequest,
    VoterAccess,
    ZooKeeperAccess,
    digest_of,
)
from kraftbridge.models.runs import RUNS, RunKind
from kraftbridge.models.spec import MigrationSpec, Runner, SecretKey
from kraftbridge.models.status import KeptCopy
from kraftbridge.outside.shell import joined

SPARK_VERSION = "4.1.4"
MAIN = "/opt/kraftbridge/run_verification.py"
UID = 185
"""User of the verifier image.
Spark's own images and the Spark operator's examples use 185; controllers run as 1000, the user of Kafka's image."""

JOB_MEMORY = "1Gi"
_LOCAL_MASTER = "local[2]"
_MINIMUM_OVERHEAD_MEBIBYTES = 384

WATCH_SECONDS = 604_800
"""Maximum time that a watch of the tree waits for the takeover. The user may pause before the last broker."""

TREE_VOLUME_SIZE = "1Gi"
"""A compressed dump of two million partitions takes about 100 MiB; two are written at a time."""

KEPT_LOG_SIZE = "5Gi"
"""Size limit of the volume that a kept copy is unpacked to. More than `kraftbridge.pods.restore.MOST_BYTES`,
so that a larger log ends with the words of the program, and not with an eviction."""

KEPT_SECONDS = 86_400
"""How long an application stays after its end, should its removal be lost."""

MAXIMUM_DIFFERENCES = 5_000
"""Maximum number of differing entities in a report.
Healing archives exactly these entities before it overwrites them."""
_MOUNTS = "/etc/kraftbridge"
_SPARK_FILE = "secret"
_SPARK_MOUNT = "spark"
_KEY_FILE = "key"
_KEY_MOUNT = "tree-key"
_TREE_FOLDER = "/var/lib/kraftbridge"
_KEPT_FOLDER = "/var/lib/kraftbridge-copy"


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a run's objects are computed from."""

    namespace: str
    migration: str
    migration_uid: str
    generation: int
    run_id: str
    profile: Profile
    gate: Phase
    controllers: str
    cluster_domain: str
    image: str
    service_account: str
    pod_defaults: pods.PodDefaults = field(default_factory=pods.PodDefaults)
    kept: KeptCopy | None = None
    """The copy whose log is compared instead of the controllers' own logs."""
    listener_certificate: bool = False
    """Whether the job shows the controllers the certificate of their own listener, or uses the login beside it,
    for want of ``controller.properties``."""


def request(spec: MigrationSpec, facts: RunFacts) -> VerificationRequest:
    """Return what the job is asked."""
    hosts = names.controller_hosts(facts.controllers, facts.namespace, spec.controllers.node_ids, facts.cluster_domain)
    voters = [
        VoterAccess(id=node_id, log_url=f"https://{host}:{LOG_SERVER_PORT}", host=host, port=CONTROLLER_PORT)
        for node_id, host in hosts.items()
    ]
    if facts.kept is not None:
        voters = [VoterAccess(id=facts.kept.node_id, log_url=f"file://{_KEPT_FOLDER}")]
    zookeeper = None
    if _reads_zookeeper(facts):
        secret_path = f"{_MOUNTS}/zookeeper" if spec.zookeeper.secret_name else None
        zookeeper = ZooKeeperAccess(connect=spec.zookeeper.connect, secret_path=secret_path)
    if facts.profile in {Profile.ZOOKEEPER, Profile.UPGRADE}:
        voters = []
    client = f"{_MOUNTS}/client"
    has_controllers = _has_controllers(facts)
    own_login = has_controllers and spec.controllers.listener.has_files and not facts.listener_certificate
    encoder = _password_encoder(spec, facts)
    is_watch = facts.profile is Profile.COPY
    return VerificationRequest(
        run_id=facts.run_id,
        migration_uid=facts.migration_uid,
        generation=facts.generation,
        phase=str(facts.gate),
        profile=facts.profile,
        zookeeper=zookeeper,
        voters=voters,
        token_path=f"{_MOUNTS}/log-reader/token" if has_controllers else None,
        ca_path=f"{_MOUNTS}/log-reader/ca.crt" if has_controllers else None,
        bootstrap_servers=spec.brokers.bootstrap_servers,
        client_config_path=f"{client}/client.properties" if spec.brokers.client_config_secret else None,
        controller_config_path=f"{client}/controller.properties" if own_login else None,
        listener_secret_path=f"{_MOUNTS}/listener" if facts.listener_certificate else None,
        listener_login=facts.listener_certificate and spec.controllers.listener.issues_logins,
        compare_served=_compare_served(spec, facts),
        password_encoder_secret_path=f"{_MOUNTS}/password-encoder/{encoder.key}" if encoder else None,
        config_map=ConfigMapReference(namespace=facts.namespace, name=names.verification_config_map(facts.run_id)),
        sample_limit=MAXIMUM_DIFFERENCES,
        tree_path=f"{_TREE_FOLDER}/tree.jsonl.gz" if is_watch else None,
        tree_key_path=f"{_MOUNTS}/{_KEY_MOUNT}/{_KEY_FILE}" if is_watch else None,
        armed_deadline_seconds=float(WATCH_SECONDS if is_watch else spec.verification.deadline_seconds),
        deadline_seconds=float(spec.verification.deadline_seconds),
    )


def _reads_zookeeper(facts: RunFacts) -> bool:
    """Return whether the run reads ZooKeeper.

    A pod does not start without a Secret that it mounts, and after the migration that of ZooKeeper may be gone.
    """
    return facts.profile is not Profile.REPLICAS


def _has_controllers(facts: RunFacts) -> bool:
    """Return whether there are controllers while the run goes on, and so the Secrets with which they are asked."""
    return facts.profile is not Profile.UPGRADE


def _password_encoder(spec: MigrationSpec, facts: RunFacts) -> SecretKey | None:
    # The tree that a watch keeps holds no cipher text, so its passwords are compared by their length.
    if facts.profile is Profile.COPY:
        return None
    return spec.controllers.password_encoder_secret


def _compare_served(spec: MigrationSpec, facts: RunFacts) -> CompareServed:
    """Return whether the job asks the brokers.

    A rollback restarts all of them: with ``IfAllowed`` it does not wait for what they serve.
    """
    wanted = spec.verification.compare_served
    if facts.kept is not None or facts.profile not in {Profile.DUAL_WRITE, Profile.UPGRADE}:
        return CompareServed.NEVER
    if wanted is CompareServed.IF_ALLOWED and facts.gate in {Phase.ROLLING_BACK, Phase.ROLLED_BACK}:
        return CompareServed.NEVER
    return wanted


def config_map(spec: MigrationSpec, facts: RunFacts) -> dict[str, Any]:
    """Return the run's ConfigMap, which is created before its application and receives the verdict."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**_meta(facts, names.verification_config_map(facts.run_id)), "ownerReferences": [_owner(facts)]},
        "data": {REQUEST_KEY: request(spec, facts).to_json()},
    }


def rights_owner(facts: RunFacts) -> dict[str, Any]:
    """Return the empty ConfigMap that owns the run's Role and RoleBinding, which are gone a moment after it.

    The operator may delete ConfigMaps; a right to delete Roles would reach those of others, too.
    It is none that the run's account may patch, which could keep it with a finalizer.
    """
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**_meta(facts, names.verification_rights(facts.run_id)), "ownerReferences": [_owner(facts)]},
    }


def access(spec: MigrationSpec, facts: RunFacts, runner: Runner, owner_uid: str) -> list[dict[str, Any]]:
    """Return the Role and the RoleBinding of the run's service account.

    It may read and patch this run's ConfigMap, and no other.
    Only a driver with executors may also create and watch pods, for as long as the run exists:
    whoever can create pods can mount the Secrets of the namespace.

    Parameters
    ----------
    owner_uid
        UID of the ConfigMap of `rights_owner`.

    Notes
    -----
    Without ``blockOwnerDeletion`` the admission plugin ``OwnerReferencesPermissionEnforcement`` asks for no further
    right where an object is created with its owner (``gc_admission.go``).
    """
    name = names.verification_rights(facts.run_id)
    report = names.verification_config_map(facts.run_id)
    meta = _meta_of_config_map(facts, name, owner_uid)
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [report], "verbs": ["get", "patch"]}]
    if has_executors(spec, facts, runner):
        rules.append({"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "create"]})
    group = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": RBAC_API_VERSION, "kind": "Role", "metadata": meta, "rules": rules},
        {
            "apiVersion": RBAC_API_VERSION,
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": facts.service_account, "namespace": facts.namespace}],
        },
    ]


def network_policy(facts: RunFacts, config_map_uid: str) -> dict[str, Any]:
    """Return the policy that admits to the run's pods only pods of the same run. What they call themselves stays open.

    Parameters
    ----------
    config_map_uid
        UID of the run's ConfigMap, which owns the policy:
        the operator has no right to delete one, and the policy is needed no longer than the ConfigMap.
    """
    labels = {"matchLabels": _labels(facts)}
    name = names.verification_config_map(facts.run_id)
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _meta_of_config_map(facts, name, config_map_uid),
        "spec": {
            "podSelector": labels,
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": labels}]}],
        },
    }


def _meta_of_config_map(facts: RunFacts, name: str, uid: str) -> dict[str, Any]:
    """Return the metadata of an object of a run that goes with the run's ConfigMap of the same name."""
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid}
    return {**_meta(facts, name), "ownerReferences": [owner]}


def _shared_secret(facts: RunFacts, name: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return a Secret that several runs share, and that goes with the migration."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": facts.namespace,
            "labels": names.labels(facts.migration, **{LABEL_ROLE: RUNS[RunKind.VERIFICATION].role}),
            "ownerReferences": [_owner(facts)],
        },
        "stringData": dict(texts),
    }


def spark_secret(facts: RunFacts, secret: str) -> dict[str, Any]:
    """Return the Secret with which driver and executors authenticate.

    It is one for all runs of a migration, and goes with the migration.

    Parameters
    ----------
    secret
        Random text. The object that exists keeps its own.
    """
    return _shared_secret(facts, names.spark_secret(facts.migration, facts.migration_uid), {_SPARK_FILE: secret})


def tree_key(facts: RunFacts, key: str) -> dict[str, Any]:
    """Return the Secret with the key of the hashes in the kept tree. It is one for all runs of an attempt.

    Parameters
    ----------
    key
        Random text. The object that exists keeps its own.
    """
    return _shared_secret(facts, names.tree_key_secret(facts.controllers), {_KEY_FILE: key})


def tree_claim(spec: MigrationSpec, facts: RunFacts) -> dict[str, Any]:
    """Return the claim of the volume that keeps the tree from before the takeover while the migration exists."""
    storage_class = spec.controllers.storage.storage_class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": names.tree_claim(facts.controllers),
            "namespace": facts.namespace,
            "labels": names.labels(facts.migration, **{LABEL_ROLE: RUNS[RunKind.VERIFICATION].role}),
            "ownerReferences": [_owner(facts)],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": TREE_VOLUME_SIZE}},
            **({"storageClassName": storage_class} if storage_class else {}),
        },
    }


def application(spec: MigrationSpec, facts: RunFacts, runner: Runner) -> dict[str, Any]:
    """Return what runs the verification.

    Profile `copy` and the comparison of a kept copy are always Jobs, whose only pod has the volume that they read.
    """
    if facts.profile is Profile.COPY:
        return _copy_job(spec, facts)
    if facts.kept is not None:
        return _forecast_job(spec, facts, facts.kept)
    if runner is Runner.SPARK_APPLICATION:
        return _spark_application(spec, facts)
    return _job(spec, facts)


def has_executors(spec: MigrationSpec, facts: RunFacts, runner: Runner) -> bool:
    """Return whether the run's driver creates pods. A Job and profile `copy` compare in their own pod."""
    alone = runner is not Runner.SPARK_APPLICATION or facts.profile is Profile.COPY or facts.kept is not None
    return not alone and spec.verification.executors > 0


def heap_mebibytes(memory: str) -> int:
    """Return the size of a heap that ``spec.verification`` names."""
    unit = 1024 if memory.endswith("g") else 1
    return int(memory[:-1]) * unit


def overhead_mebibytes(memory: str, *, alone: bool) -> int:
    """Return the memory that a pod gets beyond its heap, for the JVM itself and for Python.

    Parameters
    ----------
    memory
        Heap, as in ``spec.verification``.
    alone
        Whether the driver has no executors: the Python processes of two tasks run in its pod then.

    Notes
    -----
    Spark itself adds 40 % to a Python application's memory, but at least 384 MiB
    (``spark.kubernetes.memoryOverheadFactor`` for non-JVM jobs, ``ResourceProfile.MEMORY_OVERHEAD_MIN_MIB``).
    """
    of_spark = max(heap_mebibytes(memory) * 2 // 5, _MINIMUM_OVERHEAD_MEBIBYTES)
    if alone:
        return 3 * of_spark
    return of_spark


def job_limit_mebibytes(memory: str) -> int:
    """Return the memory limit of a Job: what a Spark driver without executors gets.

    Without a limit, the default of a LimitRange may lie below the request.
    """
    return heap_mebibytes(memory) + overhead_mebibytes(memory, alone=True)


def _arguments(spec: MigrationSpec, facts: RunFacts, *, alone: bool) -> list[str]:
    # A local master among the program's own arguments binds the driver to loopback, whatever has started it.
    arguments = ["run", "--configmap", f"{facts.namespace}/{names.verification_config_map(facts.run_id)}"]
    # Who may write ConfigMaps must not choose where the run logs in with what is mounted.
    arguments += ["--request-digest", digest_of(request(spec, facts).to_json())]
    if alone:
        arguments += ["--master", _LOCAL_MASTER]
    return arguments


def _meta(facts: RunFacts, name: str) -> dict[str, Any]:
    return {"name": name, "namespace": facts.namespace, "labels": _labels(facts)}


def _labels(facts: RunFacts) -> dict[str, str]:
    return names.labels(facts.migration, **{LABEL_ROLE: RUNS[RunKind.VERIFICATION].role, LABEL_RUN: facts.run_id})


def _owner(facts: RunFacts) -> dict[str, Any]:
    # Runs, unlike the quorum, go with their migration.
    return {"apiVersion": API_VERSION, "kind": KIND, "name": facts.migration, "uid": facts.migration_uid}


def _volumes(spec: MigrationSpec, facts: RunFacts, *, alone: bool) -> dict[str, str]:
    """Return Secret by mount name."""
    secrets = {}
    if _has_controllers(facts):
        secrets["log-reader"] = names.log_reader_secret(facts.controllers)
    if not alone:
        secrets[_SPARK_MOUNT] = names.spark_secret(facts.migration, facts.migration_uid)
    if facts.profile is Profile.COPY:
        secrets[_KEY_MOUNT] = names.tree_key_secret(facts.controllers)
    if spec.zookeeper.secret_name and _reads_zookeeper(facts):
        secrets["zookeeper"] = spec.zookeeper.secret_name
    if spec.brokers.client_config_secret:
        secrets["client"] = spec.brokers.client_config_secret
    if facts.listener_certificate:
        # The last one has the certificate.
        secrets["listener"] = listener_secrets(spec, facts.controllers)[-1]
    if encoder := _password_encoder(spec, facts):
        secrets["password-encoder"] = encoder.name
    return secrets


def _pod_template(spec: MigrationSpec, facts: RunFacts, container: str, *, alone: bool, **extra: Any) -> dict[str, Any]:
    secrets = _volumes(spec, facts, alone=alone)
    template = {
        "metadata": {"labels": _labels(facts)},
        "spec": {
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 2,
            "securityContext": {
                "runAsUser": UID, "runAsGroup": UID, "fsGroup": UID,
                "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumes": [{"name": n, "secret": {"secretName": s}} for n, s in secrets.items()],
            "containers": [
                {
                    "name": container,
                    "imagePullPolicy": spec.verification.image_pull_policy,
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    "volumeMounts": [{"name": n, "mountPath": f"{_MOUNTS}/{n}", "readOnly": True} for n in secrets],
                    **extra,
                }
            ],
        },
    }  # fmt: skip
    # The service account is the one to which the run's Role is bound.
    settings = pods.completed(spec.pods, facts.pod_defaults).model_copy(update={"service_account_name": None})
    return pods.with_settings(template, settings, spec.verification)


def _spark_conf() -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.kubernetes.submission.waitAppCompletion": "false",
        "spark.sql.shuffle.partitions": "2",
        # The driver may only create and watch pods.
        # It deletes nothing (KubernetesClusterSchedulerBackend.stop asks these settings): executors end with their
        # driver, and pods, Service and ConfigMap go with the SparkApplication, which owns them.
        "spark.kubernetes.executor.deleteOnTermination": "false",
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        # The driver loads what it plans with while the executors start, instead of waiting for them first.
        "spark.scheduler.minRegisteredResourcesRatio": "0",
        "spark.driver.extraJavaOptions": SPARK_JAVA_OPTIONS,
        "spark.executor.extraJavaOptions": SPARK_JAVA_OPTIONS,
        "spark.kubernetes.executor.podNamePrefix": "",
    }


def _authentication() -> dict[str, str]:
    """Return what keeps strangers from a driver and its executors (https://spark.apache.org/docs/4.0.0/security.html).

    Without a file Spark makes a secret and puts it into the environment of the executors' pods,
    where everybody who may read pods finds it (``BasicExecutorFeatureStep``).
    By default the cipher protects no message against changes (SPARK-47172),
    and keys come from no derivation function (``authEngineVersion`` 1, SPARK-47318).
    Executors get these settings before they connect (``SparkConf.isExecutorStartupConf``).
    """
    return {
        "spark.authenticate": "true",
        "spark.authenticate.secret.file": f"{_MOUNTS}/{_SPARK_MOUNT}/{_SPARK_FILE}",
        # An executor that starts reads the file only if its master is Kubernetes,
        # which it does not know yet (SecurityManager.secretKeyFromFile).
        "spark.executorEnv.SPARK_JAVA_OPT_1000": "-Dspark.master=k8s://executor",
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.authEngineVersion": "2",
        "spark.network.crypto.cipher": "AES/GCM/NoPadding",
        "spark.io.encryption.enabled": "true",
    }


def _spark_application(spec: MigrationSpec, facts: RunFacts) -> dict[str, Any]:
    verification = spec.verification
    alone = verification.executors == 0
    conf = {key: value for key, value in _spark_conf().items() if value}
    overhead = {}
    if alone:
        overhead["memoryOverhead"] = f"{overhead_mebibytes(verification.driver_memory, alone=True)}m"
    else:
        conf |= _authentication()
    limit = {"coreLimit": verification.core_limit} if verification.core_limit else {}
    # Templates are given natively: Kubeflow's mutating webhook is not needed then (spark-operator 2.5).
    return {
        "apiVersion": SPARK_API_VERSION,
        "kind": "SparkApplication",
        "metadata": {**_meta(facts, facts.run_id), "ownerReferences": [_owner(facts)]},
        "spec": {
            "type": "Python",
            "pythonVersion": "3",
            "mode": "cluster",
            "image": facts.image,
            "imagePullPolicy": verification.image_pull_policy,
            "mainApplicationFile": f"local://{MAIN}",
            "arguments": _arguments(spec, facts, alone=alone),
            "sparkVersion": SPARK_VERSION,
            "restartPolicy": {"type": "Never"},
            "timeToLiveSeconds": KEPT_SECONDS,
            "sparkConf": conf,
            "driver": {
                "cores": 1,
                "coreRequest": verification.core_request,
                **limit,
                "memory": verification.driver_memory,
                **overhead,
                "serviceAccount": facts.service_account,
                "template": _pod_template(spec, facts, "spark-kubernetes-driver", alone=alone),
            },
            "executor": {
                "cores": 1,
                "coreRequest": verification.core_request,
                **limit,
                # The schema wants one. A local master in the application starts none.
                "instances": max(verification.executors, 1),
                "memory": verification.executor_memory,
                "template": _pod_template(spec, facts, "spark-kubernetes-executor", alone=alone),
            },
        },
    }


def _job(spec: MigrationSpec, facts: RunFacts) -> dict[str, Any]:
    verification = spec.verification
    command = ["/opt/spark/bin/spark-submit", *_local_options(spec)]
    template = _pod_template(
        spec, facts, "verifier",
        alone=True,
        image=facts.image,
        command=[*command, MAIN, *_arguments(spec, facts, alone=True)],
        resources=_job_resources(spec),
    )  # fmt: skip
    return _job_of(facts, template, 2 * verification.deadline_seconds)


def _forecast_job(spec: MigrationSpec, facts: RunFacts, kept: KeptCopy) -> dict[str, Any]:
    """Return the Job that compares ZooKeeper with a kept copy, which its init container unpacks."""
    job = _job(spec, facts)
    pod = job["spec"]["template"]["spec"]
    pod["volumes"] += [
        pods.kept_copy_volume(kept.secret, kept.parts),
        {"name": "log", "emptyDir": {"sizeLimit": KEPT_LOG_SIZE}},
    ]
    (verifier,) = pod["containers"]
    mount = {"name": "log", "mountPath": _KEPT_FOLDER}
    verifier["volumeMounts"].append(mount)
    arguments = ["unpack", "--copy", pods.KEPT_COPY, "--sha256", kept.digest, "--directory", _KEPT_FOLDER]
    pod["initContainers"] = [
        {
            "name": "unpack",
            "image": facts.image,
            "imagePullPolicy": spec.verification.image_pull_policy,
            "command": ["python", "-m", "kraftbridge.pods.restore", *arguments],
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "resources": verifier["resources"],
            "securityContext": verifier["securityContext"],
            "volumeMounts": [mount, pods.kept_copy_mount()],
        }
    ]
    return job


def _copy_job(spec: MigrationSpec, facts: RunFacts) -> dict[str, Any]:
    template = _pod_template(
        spec, facts, "verifier",
        alone=True,
        image=facts.image,
        # Python first: the tree is watched without a JVM, which starts when Kafka copies.
        command=["python", MAIN, *_arguments(spec, facts, alone=True)],
        env=[
            {"name": "MASTER", "value": _LOCAL_MASTER},
            {"name": "PYSPARK_SUBMIT_ARGS", "value": joined([*_local_options(spec), "pyspark-shell"])},
        ],
        resources=_job_resources(spec),
    )  # fmt: skip
    pod = template["spec"]
    pod["volumes"].append({"name": "tree", "persistentVolumeClaim": {"claimName": names.tree_claim(facts.controllers)}})
    pod["containers"][0]["volumeMounts"].append({"name": "tree", "mountPath": _TREE_FOLDER})
    return _job_of(facts, template, WATCH_SECONDS + 2 * spec.verification.deadline_seconds)


def _job_resources(spec: MigrationSpec) -> dict[str, Any]:
    """Return the resources of a Job's only container; its memory limit is that of a Spark driver without executors."""
    verification = spec.verification
    limits = {"memory": f"{job_limit_mebibytes(verification.driver_memory)}Mi"}
    if verification.core_limit:
        limits["cpu"] = verification.core_limit
    return {"requests": {"cpu": verification.core_request, "memory": JOB_MEMORY}, "limits": limits}


def _local_options(spec: MigrationSpec) -> list[str]:
    options = ["--master", _LOCAL_MASTER, "--driver-memory", spec.verification.driver_memory]
    for key, value in _spark_conf().items():
        if value and not any(word in key for word in ("kubernetes", "executor", "scheduler")):
            options += ["--conf", f"{key}={value}"]
    return options


def _job_of(facts: RunFacts, template: dict[str, Any], deadline_seconds: int) -> dict[str, Any]:
    template["spec"] |= {"serviceAccountName": facts.service_account, "restartPolicy": "Never"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**_meta(facts, facts.run_id), "ownerReferences": [_owner(facts)]},
        # No retries: a run that ended without a verdict is launched anew under another id.
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "activeDeadlineSeconds": deadline_seconds,
            "template": template,
        },
    }
