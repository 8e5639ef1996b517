"""Every kind of pod that the operator creates, as its builder makes it."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from tests.support.observations import CLUSTER_ID, CONTROLLERS, IDENTITY, RUN_ID, kept_copy, spec_document
from tests.unit.builders.test_dry_start import EACH

from kraftbridge.builders import rehearsal, verification
from kraftbridge.builders.controllers import ControllersFacts, controllers_objects
from kraftbridge.builders.dry_start_pods import CopyFacts, DryStartFacts, copy_pod, probe_pod
from kraftbridge.builders.pods import PodDefaults, completed
from kraftbridge.models.phase import ControllerMode, Phase
from kraftbridge.models.rehearsal import RehearsedSettings
from kraftbridge.models.report import Profile
from kraftbridge.models.spec import MigrationSpec, Runner
from kraftbridge.models.status import RestoredLog

Pod = dict[str, Any]
COPY = "dry start's copy"
RESTORED = "controller that is restored"
_MODES = {f"controller, {mode}": mode for mode in ControllerMode}
CONTROLLERS_OF = (*_MODES, RESTORED)
VERIFIERS = ("verification Job", "copy's verification", "forecast's verification", "Spark driver", "Spark executor")
KINDS = (*CONTROLLERS_OF, *VERIFIERS, "rehearsal", "dry start's probe", COPY)


def restricted_broker() -> CopyFacts:
    """Return what a copy is made from where the broker's own pod keeps to the restricted standard and states its resources."""
    stateful_set = copy.deepcopy(dict(EACH.stateful_set))
    pod = stateful_set["spec"]["template"]["spec"]
    for container in (*pod["initContainers"], *pod["containers"]):
        container["resources"] = {"limits": {"cpu": "2", "memory": "8Gi"}}
        container["securityContext"] = {
            "runAsUser": 1001,
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    return replace(EACH, stateful_set=stateful_set)


def spec_with(**sections: Any) -> MigrationSpec:
    """Return a spec with listener and ZooKeeper Secrets, so that every container is there, and with changes of whole sections."""
    document = spec_document()
    document["zookeeper"]["secretName"] = "zookeeper"
    document["controllers"] |= {"listener": {"securityProtocol": "SSL", "secretName": "listener"}}
    for name, fields in sections.items():
        document[name] = {**document.get(name, {}), **fields}
    return MigrationSpec.model_validate(document)


def run_facts(**changes: Any) -> verification.RunFacts:
    """Return the facts of a verification before RollingBrokers."""
    fine = verification.RunFacts(
        namespace=IDENTITY.namespace,
        migration=IDENTITY.name,
        migration_uid=IDENTITY.uid,
        generation=7,
        run_id=RUN_ID,
        profile=Profile.DUAL_WRITE,
        gate=Phase.ROLLING_BROKERS,
        controllers=CONTROLLERS,
        cluster_domain="cluster.local",
        image="verifier:1",
        service_account="kraftbridge-verifier",
    )
    return replace(fine, **changes)


def every_pod(
    spec: MigrationSpec, defaults: PodDefaults | None = None, namespace: str = IDENTITY.namespace
) -> dict[str, Pod]:
    """Return ``metadata`` and ``spec`` of each kind of pod, by the names in `KINDS`."""
    defaults = defaults or PodDefaults()
    quorum = ControllersFacts(
        namespace=namespace,
        migration=IDENTITY.name,
        name=CONTROLLERS,
        cluster_domain="cluster.local",
        cluster_id=CLUSTER_ID,
        broker_settings={},
        operator_image="operator:1",
        operator_namespace="kraftbridge",
        broker_selectors=(),
        pod_defaults=defaults,
    )
    run = run_facts(namespace=namespace, pod_defaults=defaults)
    brokers = (RehearsedSettings(broker=0, image="kafka:1", settings={}),)
    rehearsed = rehearsal.RehearsalFacts(
        f"{IDENTITY.name}-rehearsal-1", IDENTITY.uid, "verifier:1", quorum, brokers, pull_secrets=("of-the-brokers",)
    )
    dry = DryStartFacts(
        namespace, IDENTITY.name, IDENTITY.uid, "r1", "operator:1", ("10.0.0.1:2181",), completed(spec.pods, defaults)
    )
    spark = verification.application(spec, run, Runner.SPARK_APPLICATION)["spec"]
    found = {
        name: controllers_objects(spec, quorum, mode, format_allowed=False)[-1]["spec"]["template"]
        for name, mode in _MODES.items()
    }
    kept = kept_copy(parts=2)
    restored = replace(quorum, restored=RestoredLog.of(kept, 1_002))
    return found | {
        RESTORED: controllers_objects(spec, restored, ControllerMode.MIGRATION, format_allowed=False)[-1]["spec"]["template"],
        "verification Job": verification.application(spec, run, Runner.JOB)["spec"]["template"],
        "copy's verification": verification.application(spec, replace(run, profile=Profile.COPY), Runner.JOB)["spec"]["template"],
        "forecast's verification": verification.application(spec, replace(run, kept=kept), Runner.JOB)["spec"]["template"],
        "Spark driver": spark["driver"]["template"],
        "Spark executor": spark["executor"]["template"],
        "rehearsal": rehearsal.job(spec, rehearsed)["spec"]["template"],
        "dry start's probe": probe_pod(dry, dry.closed),
        COPY: copy_pod(dry, restricted_broker()),
    }  # fmt: skip
