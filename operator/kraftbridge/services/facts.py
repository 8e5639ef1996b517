"""The input of the builders. Observer and actuator both read it here, so both render the same objects."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from kraftbridge.builders import names
from kraftbridge.builders.bitnami import writes_to_zookeeper
from kraftbridge.builders.broker_overlays import (
    ISSUED_DIRECTORY,
    BrokerFacts,
    environment,
    overlay,
    takes_issued_certificate,
)
from kraftbridge.builders.controllers import ControllersFacts, listener_secrets
from kraftbridge.builders.pods import PodDefaults
from kraftbridge.config import Settings
from kraftbridge.constants import ANNOTATION_CONFIGURATION
from kraftbridge.copies.dry_start import referenced
from kraftbridge.copies.templates import Overlaid, sight_of, without_overlay
from kraftbridge.models.issued import IssuedListener, IssuedSecret
from kraftbridge.models.objects import entries, section, variables_of, version_of
from kraftbridge.models.observation import TemplateSight
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import MigrationStatus, SeenSecret
from kraftbridge.phases.draft import Identity, Migration
from kraftbridge.services import original_secrets, original_state
from kraftbridge.services.answers import Answer, Answers
from kraftbridge.services.certificates import IssuedSecrets, brought_certificate, issued_principals
from kraftbridge.services.observe import workloads
from kraftbridge.services.original_secrets import KeptOriginal
from kraftbridge.services.original_state import OriginalState
from kraftbridge.storage.ports import Object, ReadPort

CREDENTIALS_SECONDS: Final = 10.0
ORIGINALS_SECONDS: Final = 5.0
SURROUNDINGS_SECONDS: Final = 60.0
ASSIGNED_USERS: Final = "openshift.io/sa.scc.uid-range"
"""Annotation of a namespace in which OpenShift assigns user ids (OpenShift, "About security context constraints")."""


class Facts:
    """Reads the recorded state of the user's objects, and returns the facts of brokers and controllers.

    Recorded states never change, but their Secrets can be deleted, so each is read anew after `ORIGINALS_SECONDS`.
    `forget` removes those of one migration.
    """

    def __init__(self, kubernetes: ReadPort, settings: Settings) -> None:
        self.kubernetes = kubernetes
        self._settings = settings
        self._kept: Answers[str, dict[str, KeptOriginal]] = Answers()
        """By UID of the migration: the recorded states by StatefulSet."""
        self._secrets: dict[str, Answer[dict[str, SeenSecret]]] = {}
        """By UID of the migration: the fingerprints of the Secrets."""
        self._issued: Answers[str, IssuedListener] = Answers()
        """By UID of the migration: the Secrets of the controllers' listener."""
        self._brought: Answers[str, IssuedSecret | None] = Answers()
        """By UID of the migration: the certificate that the user brings."""
        self._surroundings: Answers[tuple[str, str | None, str], Object] = Answers()
        """Namespaces and service accounts by kind, namespace and name."""

    def pod_defaults(self, namespace: str, spec: MigrationSpec, account: str | None = None) -> PodDefaults:
        """Return what holds for the pods in a namespace besides ``spec.pods``.

        Namespace and service account are read once a minute.

        Parameters
        ----------
        account
            Service account of the pods; None: that of ``spec.pods``.

        Raises
        ------
        ObservationError
            The namespace or the service account cannot be read.
        """
        annotations = section(self._remembered("Namespace", None, namespace), "metadata", "annotations")
        secrets: list[Object] = []
        if spec.pods.image_pull_secrets or self._settings.pull_secrets:
            name = account or spec.pods.service_account_name or "default"
            secrets = entries(self._remembered("ServiceAccount", namespace, name), "imagePullSecrets")
        return PodDefaults(
            image_pull_secrets=self._settings.pull_secrets,
            account_pull_secrets=tuple(s["name"] for s in secrets),
            assigned_users=ASSIGNED_USERS in annotations,
        )

    def _remembered(self, kind: str, namespace: str | None, name: str) -> Object:
        """Return an object that seldom changes, empty if it does not exist."""
        return self._surroundings.get(
            (kind, namespace, name),
            SURROUNDINGS_SECONDS,
            lambda: self.kubernetes.get("v1", kind, namespace, name) or {},
        )

    def forget(self, uid: str) -> None:
        """Remove the cached states of one migration."""
        self._kept.forget(uid)
        self._secrets.pop(uid, None)
        self._issued.forget(uid)
        self._brought.forget(uid)

    def kept(self, identity: Identity, status: MigrationStatus, name: str) -> KeptOriginal | None:
        """Return the recorded original state of a StatefulSet; None if none is recorded, or it is lost.

        Raises
        ------
        ObservationError
            A Secret cannot be read.
        """
        originals = self._kept.get(
            identity.uid,
            ORIGINALS_SECONDS,
            lambda: original_secrets.read(self.kubernetes, identity, status),
            asked=(status.attempt, status.originals),
        )
        return originals.get(name)

    def recorded(self, identity: Identity, status: MigrationStatus, name: str) -> OriginalState | None:
        """Return the recorded original state of a StatefulSet; None if none is recorded, or it is lost.

        Raises
        ------
        ObservationError
            A Secret cannot be read.
        """
        kept = self.kept(identity, status, name)
        return None if kept is None else kept.original

    def restored(self, migration: Migration, name: str) -> OriginalState | None:
        """Return what a rollback would restore; None if no state is recorded, or it is lost.

        Raises
        ------
        ObservationError
            A Secret cannot be read.
        """
        recorded = self.recorded(migration.identity, migration.status, name)
        return None if recorded is None else original_state.restored_state(migration.spec, migration.status, recorded)

    def original(self, migration: Migration, stateful_set: Mapping[str, Any]) -> OriginalState | None:
        """Return the user's own state of a StatefulSet: the recorded state, or the current state if none is recorded.

        Returns
        -------
        OriginalState or None
            None if the StatefulSet lacks the Kafka container, or carries an overlay and its
            original state is not recorded.
        """
        identity = migration.identity
        spec = migration.spec
        recorded = self.restored(migration, stateful_set["metadata"]["name"])
        if recorded is not None:
            return recorded
        files = original_state.mounted_files(self.kubernetes, identity.namespace, spec, stateful_set)
        values = original_state.environment_values(self.kubernetes, identity.namespace, spec, stateful_set)
        return original_state.capture(spec, stateful_set, files, values)

    def own_template(self, migration: Migration, stateful_set: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return a StatefulSet as its owner has it now, without our overlay.

        Returns
        -------
        Mapping or None
            None if it carries an overlay and its original state is lost.

        Raises
        ------
        ObservationError
            A Secret cannot be read.
        """
        spec = migration.spec
        annotations = section(stateful_set, "spec", "template", "metadata", "annotations")
        mode = BrokerMode.of(annotations.get(ANNOTATION_CONFIGURATION, ""))
        recorded = self.recorded(migration.identity, migration.status, stateful_set["metadata"]["name"])
        if recorded is None:
            return None if original_state.overlay_of(stateful_set) else stateful_set
        facts = self.brokers(migration, recorded)
        if mode is BrokerMode.ZOOKEEPER:
            return self._without_kept(migration, recorded, facts, stateful_set)
        wanted = overlay(spec, facts, stateful_set["metadata"]["name"], mode)
        overlaid = Overlaid(
            container=spec.brokers.container,
            variables=environment(spec, facts, mode).keys(),
            volumes=[volume["name"] for volume in entries(wanted, "spec", "template", "spec", "volumes")],
            mount=ISSUED_DIRECTORY if facts.issued_secret else "",
            former_container=recorded.container,
            former_volumes=recorded.volumes,
            images=(spec.brokers.container, *recorded.init_containers) if facts.image_in(mode) is not None else (),
        )
        return without_overlay(stateful_set, overlaid)

    @staticmethod
    def _without_kept(
        migration: Migration, recorded: OriginalState, facts: BrokerFacts, stateful_set: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return a StatefulSet without what a rollback leaves in it: a broker cannot run its former image again."""
        restored = original_state.restored_state(migration.spec, migration.status, recorded)
        kafka = workloads.container_of(stateful_set, migration.spec.brokers.container) or {}
        if restored is recorded or facts.upgrade is None or kafka.get("image") != facts.upgrade.image:
            return stateful_set
        former = variables_of(recorded.container)
        kept = variables_of(restored.container)
        overlaid = Overlaid(
            container=migration.spec.brokers.container,
            variables={name for name, entry in kept.items() if former.get(name) != entry},
            volumes=(),
            mount="",
            former_container=recorded.container,
            former_volumes=recorded.volumes,
            images=(migration.spec.brokers.container, *recorded.init_containers),
        )
        return without_overlay(stateful_set, overlaid)

    def template_sight(self, migration: Migration, stateful_set: Mapping[str, Any]) -> TemplateSight | None:
        """Return the parts of the template that a broker would start from, and of all ConfigMaps and Secrets in it.

        They are read at each call: what was read some seconds ago is not what a broker would start with.

        Returns
        -------
        TemplateSight or None
            None if the overlay cannot be told from the rest (`own_template`).

        Raises
        ------
        ObservationError
            An object that it refers to cannot be read.
        """
        own = self.own_template(migration, stateful_set)
        if own is None:
            return None
        references = referenced(section(own, "spec", "template", "spec"))
        contents = {
            (kind, name): self.kubernetes.get("v1", kind, migration.identity.namespace, name)
            for kind, name in references
        }
        return sight_of(own, contents)

    def brokers(self, migration: Migration, original: OriginalState) -> BrokerFacts:
        """Return the input for the overlay of one StatefulSet."""
        identity = migration.identity
        settings, unreadable = original_state.settings_of(migration.spec, original)
        issued = takes_issued_certificate(migration.spec, settings.keys() | unreadable)
        return BrokerFacts(
            namespace=identity.namespace,
            controllers=migration.controllers,
            cluster_domain=identity.cluster_domain,
            cluster_id=migration.status.cluster_id or "",
            settings=settings,
            java_tool_options=original.java_tool_options,
            properties_text=original.properties_text,
            variables=tuple(variables_of(original.container)),
            inherited=original.environment.inherited,
            zookeeper_writers=writes_to_zookeeper(original.environment.values),
            issued_secret=names.issued_brokers_secret(identity.name, identity.uid) if issued else "",
            files=original.files,
            upgrade=original_state.upgrade_of(migration.spec, migration.status, original),
            kafka4=original_state.kafka4_of(migration.status, original),
        )

    def controllers(self, migration: Migration) -> ControllersFacts:
        """Return the input for the controllers' objects.

        Raises
        ------
        ObservationError
            A StatefulSet of brokers does not exist or cannot be read.
        """
        status = migration.status
        settings: dict[str, str] = {}
        selectors = []
        for ref in migration.spec.brokers.stateful_sets:
            stateful_set = workloads.existing(self.kubernetes, migration.identity.namespace, ref.name)
            original = self.original(migration, stateful_set)
            if original is not None:
                settings |= self.brokers(migration, original).settings
            selectors.append(stateful_set["spec"]["selector"])
        facts = replace(self.unread_controllers(migration), broker_selectors=tuple(selectors))
        rendered = status.controllers.rendered if status.controllers is not None else None
        # The settings that the brokers run with are more reliable than a template.
        if rendered is None:
            settings |= status.broker_settings
            seen = self.secrets(migration)
            fingerprints = {name: secret.fingerprint for name, secret in seen.items()}
            return replace(facts, broker_settings=settings, credentials=fingerprints)
        shared = rendered.broker_settings
        settings |= status.broker_settings if shared is None else shared
        return replace(
            facts,
            broker_settings=settings,
            credentials=rendered.credentials,
            restored=rendered.restored,
            clean=rendered.clean,
            cleaned=status.controllers is not None and status.controllers.cleaned,
        )

    def secrets(self, migration: Migration) -> dict[str, SeenSecret]:
        """Return the version and a fingerprint of each Secret that the controllers read when they start, by name.

        Secrets that do not exist are left out.

        A status is less protected than a Secret, and a plain hash of a password can be guessed.
        So the key is the token of the controllers' log servers.
        Somebody can delete it, and another one takes its place.
        So a Secret of which the status has this version keeps its fingerprint.
        The answer is at most `CREDENTIALS_SECONDS` old.

        Raises
        ------
        ObservationError
            A Secret cannot be read.
        """
        identity = migration.identity
        spec = migration.spec
        status = migration.status
        controllers = spec.controllers
        migrates = status.controllers is None or status.controllers.mode.migrates
        name = migration.controllers
        secrets = set(listener_secrets(spec, name))
        if controllers.password_encoder_secret is not None:
            secrets.add(controllers.password_encoder_secret.name)
        # Controllers that have left migration mode do not use ZooKeeper.
        if migrates and spec.zookeeper.secret_name is not None:
            secrets.add(spec.zookeeper.secret_name)
        if not secrets:
            return {}
        asked = (sorted(secrets), status.attempt)
        now = time.monotonic()
        answer = self._secrets.get(identity.uid)
        if answer is not None and answer.holds(CREDENTIALS_SECONDS, asked):
            return answer.value
        access = self.kubernetes.get("v1", "Secret", identity.namespace, names.log_access_secret(name))
        if access is None:
            return {}  # it is created before the controllers
        key = base64.b64decode(access["data"]["token"])
        known = {} if status.controllers is None else status.controllers.secrets
        seen = {}
        for secret_name in sorted(secrets):
            secret = self.kubernetes.get("v1", "Secret", identity.namespace, secret_name)
            if secret is None:
                continue
            before = known.get(secret_name)
            if before is None or before.version != version_of(secret):
                before = _seen(secret, key)
            seen[secret_name] = before
        self._secrets[identity.uid] = Answer(seen, asked, now)
        return seen

    def issued(self, migration: Migration, now: datetime) -> IssuedListener | None:
        """Return the certificates and logins that the operator issues, at most `CREDENTIALS_SECONDS` old.

        Without ``listener.generate`` it is None.

        Raises
        ------
        ObservationError
            A Secret cannot be read.
        """
        spec = migration.spec
        if not spec.controllers.listener.generate:
            return None
        listener = spec.controllers.listener
        asked = (migration.status.attempt, migration.status.controllers is None, listener, spec.controllers.node_ids)
        return self._issued.get(
            migration.identity.uid,
            CREDENTIALS_SECONDS,
            lambda: IssuedSecrets(self.kubernetes, migration).look(now),
            asked=(*asked, migration.identity.cluster_domain),
        )

    def brought(self, migration: Migration, now: datetime) -> IssuedSecret | None:
        """Return the certificate that the user brings for the listener, at most `CREDENTIALS_SECONDS` old.

        Raises
        ------
        ObservationError
            The Secret cannot be read.
        """
        return self._brought.get(
            migration.identity.uid,
            CREDENTIALS_SECONDS,
            lambda: brought_certificate(self.kubernetes, migration, now),
            asked=(
                migration.status.attempt,
                migration.spec.controllers.listener,
                migration.spec.controllers.node_ids,
                migration.identity.cluster_domain,
            ),
        )

    def unread_controllers(self, migration: Migration) -> ControllersFacts:
        """Return the facts that need no data from the brokers, enough for the controllers' resource requests."""
        identity = migration.identity
        status = migration.status
        return ControllersFacts(
            namespace=identity.namespace,
            migration=identity.name,
            name=migration.controllers,
            cluster_domain=identity.cluster_domain,
            cluster_id=status.cluster_id or "",
            broker_settings={},
            operator_image=self._settings.operator_image,
            operator_namespace=self._settings.pod_namespace,
            broker_selectors=(),
            issued_principals=issued_principals(identity.uid, migration.spec.controllers.listener),
            pod_defaults=self.pod_defaults(identity.namespace, migration.spec),
            minimum_batch_size=status.rehearsal.minimum_batch_size if status.rehearsal is not None else None,
        )


def _seen(secret: Object, key: bytes) -> SeenSecret:
    text = json.dumps(section(secret, "data"), sort_keys=True)
    fingerprint = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()[:16]
    return SeenSecret(version=version_of(secret), fingerprint=fingerprint)
