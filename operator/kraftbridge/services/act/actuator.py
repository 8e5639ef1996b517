"""Executes actions. Each can be repeated: names are deterministic, and writes to others' objects have preconditions."""

from __future__ import annotations

import base64
import logging
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import yaml

from kraftbridge.builders import broker_overlays as overlays
from kraftbridge.builders import controllers as quorum
from kraftbridge.builders import hand_over, names
from kraftbridge.config import Settings
from kraftbridge.constants import ANNOTATION_LOCK
from kraftbridge.exceptions import ActionError, ActionRefusedError, MigrationError
from kraftbridge.listener import authority
from kraftbridge.models.decision import (
    Action,
    ApplyControllers,
    ArchiveDifferences,
    CollectRun,
    ConfigureBrokers,
    CreatePartitionStates,
    FenceRun,
    HoldLease,
    IssueListenerCertificates,
    KeepCopy,
    KeepOriginal,
    LaunchRun,
    LockStatefulSet,
    PublishFinalManifest,
    PublishFindings,
    RecordBroker,
    ReleaseLease,
    ReleaseRun,
    ReleaseStatefulSet,
    RemoveCanary,
    RemoveConfigurations,
    RemoveControllerClaim,
    RemoveRun,
    RenewLeaders,
    RestartPod,
    RestoreStatefulSet,
    StopControllers,
    UpdateMetadataVersion,
    WriteCanary,
)
from kraftbridge.models.objects import entries
from kraftbridge.models.observation import ActionOutcome
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.status import rendered_spec
from kraftbridge.pods.credentials import text_files
from kraftbridge.services import kept_broker_records as broker_records
from kraftbridge.services import kept_copies, original_secrets, original_state, ownership
from kraftbridge.services.act import archives, removal
from kraftbridge.services.act.checked import tried_again
from kraftbridge.services.act.runs import Runs
from kraftbridge.services.act.step import Step, create_once
from kraftbridge.services.certificates import ListenerIssuer
from kraftbridge.services.dry_starts import DryStarter
from kraftbridge.services.facts import Facts
from kraftbridge.services.leases import Leases
from kraftbridge.services.metrics import ACTIONS
from kraftbridge.services.observe import belongings
from kraftbridge.services.observe.workloads import mounted_configuration
from kraftbridge.services.original_state import OriginalState

_STATEFUL_SET = ("apps/v1", "StatefulSet")
_TRIES = 5
"""Conflicts with the StatefulSet's controller after which an act is left to the next step."""

logger = logging.getLogger(__name__)

_ForBrokers = (
    LockStatefulSet
    | KeepOriginal
    | HoldLease
    | ReleaseLease
    | ConfigureBrokers
    | ReleaseStatefulSet
    | RestartPod
    | RecordBroker
    | RenewLeaders
    | RestoreStatefulSet
    | RemoveControllerClaim
)
_ForQuorum = (
    ApplyControllers
    | RemoveConfigurations
    | IssueListenerCertificates
    | CreatePartitionStates
    | WriteCanary
    | RemoveCanary
    | KeepCopy
    | StopControllers
    | UpdateMetadataVersion
)
_ForRuns = LaunchRun | FenceRun | ReleaseRun | CollectRun | RemoveRun
_Besides = ArchiveDifferences | PublishFindings | PublishFinalManifest


class Actuator:
    """Executes the actions that `decide` returned, each only while what was decided on still holds."""

    def __init__(self, facts: Facts, settings: Settings, leases: Leases, dry_starts: DryStarter) -> None:
        self._leases = leases
        self._facts = facts
        self._runs = Runs(facts, settings, dry_starts)

    def carry_out(self, step: Step, action: Action) -> ActionOutcome:
        """Execute one action and return its outcome. Domain errors become part of the outcome."""
        name = type(action).__name__
        try:
            step.kubernetes.check()
            self._do(step, action)
        except ActionRefusedError as error:
            ACTIONS.labels(action=name, outcome="refused").inc()
            return ActionOutcome(name, str(error), refused=True)
        except MigrationError as error:
            ACTIONS.labels(action=name, outcome="failed").inc()
            return ActionOutcome(name, str(error))
        ACTIONS.labels(action=name, outcome="done").inc()
        return ActionOutcome(name)

    def _do(self, step: Step, action: Action) -> None:
        if isinstance(action, _ForBrokers):
            self._do_for_brokers(step, action)
        elif isinstance(action, _ForQuorum):
            self._do_for_quorum(step, action)
        elif isinstance(action, _ForRuns):
            self._runs.carry_out(step, action)
        else:
            self._do_besides(step, action)

    def _do_for_brokers(self, step: Step, action: _ForBrokers) -> None:
        match action:
            case LockStatefulSet(name):
                self._lock(step, name)
            case KeepOriginal(name):
                if not original_secrets.keep(step.kubernetes, step.identity, step.status, name):
                    raise ActionError(f"StatefulSet {step.identity.namespace}/{name}: its original state is lost")
            case HoldLease(name, resource_version):
                self._leases.hold(step.identity, name, resource_version, datetime.now(UTC))
            case ReleaseLease(name):
                self._leases.release(step.identity, name)
            case ConfigureBrokers(name, mode):
                self._configure(step, name, mode)
            case ReleaseStatefulSet(name):
                self._release(step, name)
            case RestartPod():
                self._restart(step, action)
            case RecordBroker():
                broker_records.record(step.kubernetes, step.identity, step.clients, action, datetime.now(UTC))
                step.memory.record = None
            case RenewLeaders(most):
                step.clients.brokers.renew_leaders(most)
            case RestoreStatefulSet(name):
                self._restore(step, name)
            case RemoveControllerClaim(kraft_epoch):
                self._archive_znodes(step)
                step.kubernetes.check()
                step.clients.zookeeper.remove_controller_claim(kraft_epoch)

    def _do_for_quorum(self, step: Step, action: _ForQuorum) -> None:
        match action:
            case ApplyControllers():
                self._apply_controllers(step, action)
            case RemoveConfigurations():
                removal.remove_configurations(step.kubernetes, step.identity.namespace, action)
            case IssueListenerCertificates():
                ListenerIssuer(step.kubernetes, step.migration).issue(datetime.now(UTC))
                # Both were read without the Secrets.
                step.memory.survey = None
                step.memory.dry_start = None
            case CreatePartitionStates():
                created = step.clients.zookeeper.create_partition_states()
                if created:
                    logger.warning("partitions had no state in ZooKeeper, which was created: %s", ", ".join(created))
            case WriteCanary(value, replicas):
                step.clients.controllers.write_canary(value, replicas)
                step.memory.canary_committed = value
            case RemoveCanary(value):
                step.clients.controllers.remove_canary(value)
            case KeepCopy():
                controllers = step.status.controllers
                if controllers is not None:
                    kept_copies.keep(
                        step.kubernetes, step.identity, step.clients, controllers, action, datetime.now(UTC)
                    )
            case StopControllers():
                removal.stop_controllers(step.kubernetes, step.identity.namespace, action)
            case UpdateMetadataVersion(level, upgrade, feature):
                step.clients.controllers.update_metadata_version(level, upgrade, feature)

    def _do_besides(self, step: Step, action: _Besides) -> None:
        match action:
            case ArchiveDifferences(run_id, secret):
                self._archive_differences(step, run_id, secret)
            case PublishFindings(name, text):
                identity = step.identity
                findings = archives.findings(identity.namespace, name, identity.name, identity.uid, text)
                step.kubernetes.apply(findings, force=True)
            case PublishFinalManifest():
                self._publish_final_manifest(step)

    def _restart(self, step: Step, action: RestartPod) -> None:
        namespace = step.identity.namespace
        if action.ready:
            step.kubernetes.evict(namespace, action.pod, action.uid, action.grace_seconds)
        else:
            step.kubernetes.delete(
                "v1", "Pod", namespace, action.pod, uid=action.uid, grace_seconds=action.grace_seconds
            )

    # ------------------------------------------------------------------------------------------- brokers

    def _lock(self, step: Step, name: str) -> None:
        namespace = step.identity.namespace
        stateful_set = step.kubernetes.get(*_STATEFUL_SET, namespace, name)
        if stateful_set is None:
            raise ActionError(f"StatefulSet {namespace}/{name} does not exist")
        lock = stateful_set["metadata"].get("annotations", {}).get(ANNOTATION_LOCK, "")
        if lock and lock != step.identity.lock:
            raise ActionRefusedError(
                f"StatefulSet {namespace}/{name} is locked by migration {lock}; finish or delete that one first"
            )
        self._record(step, name, stateful_set)
        # Not server-side apply: the user owns the defaulted rollingUpdate.partition,
        # which is invalid together with OnDelete (422).
        patch = {
            "metadata": {"annotations": {ANNOTATION_LOCK: step.identity.lock}},
            "spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}},
        }
        # The generation that was decided on is compared again, so what is recorded is what is locked.
        step.kubernetes.merge_patch(*_STATEFUL_SET, namespace, name, patch)

    def _record(self, step: Step, name: str, stateful_set: Mapping[str, Any]) -> None:
        """Record the original state.

        An overlay is never recorded as such: a StatefulSet whose record is lost is only locked.
        """
        namespace = step.identity.namespace
        spec = step.spec
        if original_secrets.keep(step.kubernetes, step.identity, step.status, name):
            return
        mark = original_state.overlay_of(stateful_set)
        if mark and step.status.has_changed(name):
            return
        if mark:
            raise ActionRefusedError(
                f"StatefulSet {namespace}/{name} carries the overlay of another migration ({mark})"
            )
        files = original_state.mounted_files(step.kubernetes, namespace, spec, stateful_set)
        values = original_state.environment_values(step.kubernetes, namespace, spec, stateful_set)
        original = original_state.capture(spec, stateful_set, files, values)
        if original is None:
            raise ActionRefusedError(f"StatefulSet {namespace}/{name} has no container {spec.brokers.container}")
        original_secrets.record(step.kubernetes, step.identity, step.status, name, original)

    def _configure(self, step: Step, name: str, mode: BrokerMode) -> None:
        facts = self._broker_facts(step, name)
        properties = overlays.properties_object(step.spec, facts, step.identity.name, mode)
        if properties is not None:
            step.kubernetes.apply(properties, force=True)
        self._give_back(step, name, facts, mode)
        step.kubernetes.apply(overlays.overlay(step.spec, facts, name, mode), force=True)

    def _restore(self, step: Step, name: str) -> None:
        facts = self._broker_facts(step, name)
        original = self._recorded(step, name)
        self._give_back(step, name, facts, BrokerMode.ZOOKEEPER)
        # Before the overlay goes: an operator that stops here finds the overlay, and begins anew.
        self._return_fields(step, name, original, original_state.overwritten_paths(step.spec, original, facts), {})
        namespace = step.identity.namespace
        nothing = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name, "namespace": namespace}}
        step.kubernetes.apply(nothing, force=True)

    def _give_back(self, step: Step, name: str, facts: overlays.BrokerFacts, mode: BrokerMode) -> None:
        """Restore, as their owners, the values that the overlay applied next does not set.

        An entry that the operator forced and then drops would stay blank.
        """
        namespace = step.identity.namespace
        patches = original_state.restoring_patches(step.spec, self._recorded(step, name), facts, mode)
        for manager, patch in patches:
            step.kubernetes.strategic_patch(*_STATEFUL_SET, namespace, name, patch, field_manager=manager)

    def _return_fields(
        self, step: Step, name: str, original: OriginalState, paths: list[ownership.Path], metadata: dict[str, Any]
    ) -> None:
        """Give fields back to their former owners, and patch the rest of the StatefulSet's metadata with them.

        The StatefulSet's controller writes its status right after a change,
        so the resourceVersion that was read is often an old one.
        """
        tried_again(partial(self._try_to_return_fields, step, name, original, paths, metadata), _TRIES)

    def _try_to_return_fields(
        self, step: Step, name: str, original: OriginalState, paths: list[ownership.Path], metadata: dict[str, Any]
    ) -> None:
        namespace = step.identity.namespace
        stateful_set = step.kubernetes.get(*_STATEFUL_SET, namespace, name)
        if stateful_set is None:
            raise ActionError(f"StatefulSet {namespace}/{name} does not exist")
        current = entries(stateful_set, "metadata", "managedFields")
        returned = ownership.returned(current, original.managed_fields, paths)
        changed = dict(metadata)
        # The API server takes an empty list for a wish to forget every owner.
        if returned and returned != current:
            changed["managedFields"] = returned
        if not changed:
            return
        version = stateful_set["metadata"]["resourceVersion"]
        patch = {"metadata": changed}
        step.kubernetes.merge_patch(*_STATEFUL_SET, namespace, name, patch, resource_version=version)

    def _archive_znodes(self, step: Step) -> None:
        values = step.clients.zookeeper.payloads(["/controller", "/controller_epoch", "/migration"])
        if values["/migration"] is None:
            return  # the claim was removed before: its archive exists
        name = names.archive_config_map(step.identity.name, step.identity.uid, step.status.attempt)
        step.kubernetes.apply(archives.znodes(step.identity.namespace, name, step.identity.name, values), force=True)

    def _release(self, step: Step, name: str) -> None:
        namespace = step.identity.namespace
        original = self._facts.recorded(step.identity, step.status, name)
        unlocked = {"annotations": {ANNOTATION_LOCK: None}}
        if original is None:
            patch = {"metadata": unlocked, "spec": {"updateStrategy": {"type": step.status.former_strategy(name)}}}
            step.kubernetes.merge_patch(*_STATEFUL_SET, namespace, name, patch)
            return
        patch = {"spec": {"updateStrategy": dict(original.update_strategy)}}
        step.kubernetes.merge_patch(*_STATEFUL_SET, namespace, name, patch)
        self._return_fields(step, name, original, [("f:spec", "f:updateStrategy")], unlocked)

    def _broker_facts(self, step: Step, name: str) -> overlays.BrokerFacts:
        return self._facts.brokers(step.migration, self._recorded(step, name))

    def _recorded(self, step: Step, name: str) -> OriginalState:
        recorded = self._facts.restored(step.migration, name)
        if recorded is None:
            raise ActionError(f"StatefulSet {step.identity.namespace}/{name}: its original state is not recorded")
        return recorded

    # -------------------------------------------------------------------------------------------- quorum

    def _apply_controllers(self, step: Step, action: ApplyControllers) -> None:
        identity = step.identity
        controllers = step.status.controllers
        restores = (
            controllers is not None and controllers.rendered is not None and controllers.rendered.restored is not None
        )
        if not action.format_allowed and controllers is not None and not restores:
            belongings.check_claims(step.kubernetes, identity.namespace, controllers)
        self._ensure_log_access(step, step.migration.controllers)
        facts = self._facts.controllers(step.migration)
        spec = rendered_spec(step.spec, step.status)
        objects = quorum.controllers_objects(
            spec, facts, action.mode, format_allowed=action.format_allowed, reformat=action.reformat
        )
        for obj in quorum.chosen(objects, action.only):
            if obj.get("immutable"):
                self._create_immutable(step, obj)
            else:
                step.kubernetes.apply(obj, force=True)

    def _create_immutable(self, step: Step, obj: Mapping[str, Any]) -> None:
        """Create an object that is named by its content, in the place of another one under its name.

        The API server refuses to change one that is immutable.
        """
        metadata = obj["metadata"]
        which = (obj["apiVersion"], obj["kind"], metadata["namespace"], metadata["name"])
        present = step.kubernetes.get(*which)
        if present is not None and not quorum.is_same(obj, present):
            step.kubernetes.delete(*which, uid=present["metadata"]["uid"])
            present = None
        if present is None:
            step.kubernetes.create(obj)

    def _ensure_log_access(self, step: Step, controllers: str) -> None:
        namespace = step.identity.namespace
        domain = step.identity.cluster_domain
        server = names.log_access_secret(controllers)
        reader = names.log_reader_secret(controllers)
        present = step.kubernetes.get("v1", "Secret", namespace, server)
        if present is None:
            hosts = names.controller_hosts(controllers, namespace, step.spec.controllers.node_ids, domain)
            files = log_server_files(list(hosts.values()))
            create_once(step.kubernetes, _secret(namespace, server, step.identity.name, files))
            present = step.kubernetes.get("v1", "Secret", namespace, server)
        if present is None:
            return
        encoded = {k: present["data"][k] for k in ("ca.crt", "token")}
        copy = step.kubernetes.get("v1", "Secret", namespace, reader)
        if copy is None:
            files = {k: base64.b64decode(v).decode() for k, v in encoded.items()}
            create_once(step.kubernetes, _secret(namespace, reader, step.identity.name, files))
        elif copy.get("data") != encoded:  # that of a Secret which was deleted
            step.kubernetes.merge_patch("v1", "Secret", namespace, reader, {"data": encoded})

    # -------------------------------------------------------------------------------------- verification

    def _archive_differences(self, step: Step, run_id: str, secret: str) -> None:
        namespace = step.identity.namespace
        name = names.verification_config_map(run_id)
        config_map = step.kubernetes.get("v1", "ConfigMap", namespace, name)
        if config_map is None:
            raise ActionError(f"ConfigMap {namespace}/{name} with the report of {run_id} does not exist")
        report = archives.report_of(config_map)
        values = step.clients.zookeeper.payloads(archives.paths_of(report.differences))
        create_once(step.kubernetes, archives.secret(namespace, secret, step.identity.name, report, values))

    # --------------------------------------------------------------------------------------------- others

    def _publish_final_manifest(self, step: Step) -> None:
        facts = {}
        for ref in step.spec.brokers.stateful_sets:
            original = self._facts.restored(step.migration, ref.name)
            if original is not None:
                facts[ref.name] = self._facts.brokers(step.migration, original)
        files = hand_over.broker_manifests(step.spec, facts, step.identity.name)
        files["controllers.yaml"] = self._controllers_manifest(step)
        if step.status.listener_certificates is not None:
            files["certificates.txt"] = hand_over.about_certificates(step.status.listener_certificates)
        step.kubernetes.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": step.status.final_manifest,
                    "namespace": step.identity.namespace,
                    "labels": names.labels(step.identity.name),
                },
                "data": files,
            },
            force=True,
        )

    def _controllers_manifest(self, step: Step) -> str:
        """Return the controllers' objects as they are, volumes included; a Secret stays where it is.

        Of their configurations it is the one that the template names.
        """
        namespace = step.identity.namespace
        controllers = step.status.controllers
        if controllers is None:
            return ""
        stateful_set = step.kubernetes.get(*_STATEFUL_SET, namespace, controllers.name)
        configuration = "" if stateful_set is None else mounted_configuration(stateful_set)
        wanted = [
            (*_STATEFUL_SET, controllers.name),
            *(place for place in removal.belongings(controllers.name) if "Secret" not in place),
            *([("v1", "ConfigMap", configuration)] if configuration else []),
            *(
                ("v1", "PersistentVolumeClaim", names.controller_claim(controllers.name, i))
                for i in controllers.node_ids
            ),
        ]
        documents = []
        for api_version, kind, name in wanted:
            obj = step.kubernetes.get(api_version, kind, namespace, name)
            if obj is not None:
                documents.append(hand_over.exported({"apiVersion": api_version, "kind": kind, **obj}))
        return yaml.safe_dump_all(documents, sort_keys=False)


def _secret(namespace: str, name: str, migration: str, files: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": names.labels(migration)},
        "stringData": files,
    }


VALID_FOR = authority.AUTHORITY_LIFETIME
"""The quorum outlives the operator, so nothing would renew the certificate.
The key never leaves the controllers' Secret."""


def log_server_files(dns_names: list[str]) -> dict[str, str]:
    """Return ``ca.crt``, ``tls.crt``, ``tls.key`` and ``token``. The CA's own key is discarded."""
    now = datetime.now(UTC)
    signer = authority.new_authority("kraftbridge log servers", now)
    purpose = authority.Purpose("kraftbridge log server", tuple(dns_names), client=False)
    files = authority.issue(text_files(signer), purpose, VALID_FOR.days, now)
    return {**text_files(files), "token": secrets.token_urlsafe(32)}
