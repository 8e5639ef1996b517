"""Executes the actions of a verification that are its own: it is launched, and released."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from kraftbridge.builders import names
from kraftbridge.builders import verification as builder
from kraftbridge.config import Settings
from kraftbridge.constants import SPARK_API_VERSION
from kraftbridge.exceptions import ActionError
from kraftbridge.models.decision import LaunchRun, ReleaseRun
from kraftbridge.models.report import GO_KEY, Go, Profile
from kraftbridge.models.spec import Runner
from kraftbridge.models.status import VerificationStatus
from kraftbridge.services.act.step import Step, create_once
from kraftbridge.services.clients import shows_listener_certificate
from kraftbridge.services.facts import Facts
from kraftbridge.storage.ports import KubernetesPort

_SECRET_BYTES = 48


def launch(facts: Facts, settings: Settings, step: Step, action: LaunchRun) -> None:
    """Create the run's ConfigMap and application; it prepares its session and waits for its release.

    Raises
    ------
    MigrationError
        The API server refuses, or does not answer.
    """
    spec = step.spec
    kubernetes = step.kubernetes
    record = next(run for run in step.status.verifications if run.run_id == action.run_id)
    run = _facts(facts, settings, step, record)
    runner = spec.verification.runner
    if runner is Runner.SPARK_APPLICATION and not kubernetes.serves(SPARK_API_VERSION, "SparkApplication"):
        runner = Runner.JOB
    if record.profile is Profile.COPY:
        create_once(kubernetes, builder.tree_claim(spec, run))
        create_once(kubernetes, builder.tree_key(run, secrets.token_urlsafe(_SECRET_BYTES)))
    report_uid = _created(kubernetes, builder.config_map(spec, run))
    # Before the first pod: until it is there, anybody may connect.
    create_once(kubernetes, builder.network_policy(run, report_uid))
    if builder.has_executors(spec, run, runner):
        create_once(kubernetes, builder.spark_secret(run, secrets.token_urlsafe(_SECRET_BYTES)))
    rights_uid = _created(kubernetes, builder.rights_owner(run))
    for obj in builder.access(spec, run, runner, rights_uid):
        create_once(kubernetes, obj)
    create_once(kubernetes, builder.application(spec, run, runner))


def _created(kubernetes: KubernetesPort, config_map: Mapping[str, Any]) -> str:
    """Create a ConfigMap unless it exists; return its UID, for what it owns."""
    create_once(kubernetes, config_map)
    metadata = config_map["metadata"]
    found = kubernetes.get("v1", "ConfigMap", metadata["namespace"], metadata["name"])
    if found is None:
        raise ActionError(f"ConfigMap {metadata['namespace']}/{metadata['name']} vanished")
    return str(found["metadata"]["uid"])


def _facts(facts: Facts, settings: Settings, step: Step, record: VerificationStatus) -> builder.RunFacts:
    spec = step.spec
    namespace = step.identity.namespace
    controllers = step.migration.controllers
    # A migration that upgrades its brokers has no controllers yet, and no Secret of their listener.
    has_listener = record.profile is not Profile.UPGRADE
    account = spec.verification.service_account or settings.verifier_service_account
    return builder.RunFacts(
        namespace=namespace,
        migration=step.identity.name,
        migration_uid=step.identity.uid,
        generation=record.generation,
        run_id=record.run_id,
        profile=record.profile,
        gate=record.gate,
        # A forecast compares the copy in place of the controllers' own logs.
        kept=step.status.kept_copy if record.is_forecast else None,
        controllers=controllers,
        cluster_domain=step.identity.cluster_domain,
        image=spec.verification.image or settings.verifier_image,
        service_account=account,
        pod_defaults=facts.pod_defaults(namespace, spec, account),
        listener_certificate=(
            has_listener and shows_listener_certificate(step.kubernetes, namespace, controllers, spec)
        ),
    )


def release(step: Step, action: ReleaseRun) -> None:
    """Release the armed run.

    Raises
    ------
    MigrationError
        The API server refuses, or does not answer.
    """
    go = Go(run_id=action.run_id, at=datetime.now(UTC)).to_json()
    name = names.verification_config_map(action.run_id)
    step.kubernetes.merge_patch("v1", "ConfigMap", step.identity.namespace, name, {"data": {GO_KEY: go}})
