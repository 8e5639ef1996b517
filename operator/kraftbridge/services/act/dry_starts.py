"""Executes the actions of a dry start: makes its copies behind their gates, lets them start, collects what they show.

Each action can be repeated: what it made is found by its name.
"""

from __future__ import annotations

import base64
import gzip
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from kraftbridge.builders import dry_start_pods as builder
from kraftbridge.builders import image_pulls
from kraftbridge.builders.broker_overlays import short_hash
from kraftbridge.builders.dry_start_pods import DryStartFacts
from kraftbridge.builders.pods import completed
from kraftbridge.config import Settings
from kraftbridge.constants import LABEL_RUN
from kraftbridge.copies.admission import Alike, additions, alike
from kraftbridge.copies.dry_start import copies_in
from kraftbridge.copies.image_pulls import failures, untried
from kraftbridge.exceptions import ActionError, ConflictError, MigrationError, ObservationError, OvertakenError
from kraftbridge.models.decision import CollectRun, FenceRun, LaunchRun, ReleaseRun, RemoveRun
from kraftbridge.models.dry_start import (
    NOT_PULLED_KEY,
    PLAN_KEY,
    PROBLEM_KEY,
    CopyOutcome,
    DryStartPlan,
    DryStartStage,
    MadePods,
    PullKey,
)
from kraftbridge.models.objects import section
from kraftbridge.models.runs import DRY_START_PARALLEL, DRY_START_POD_LIMIT, PULL_LIMIT
from kraftbridge.models.status import DryStartRunStatus, first, some
from kraftbridge.outside import bounds
from kraftbridge.phases.draft import Migration
from kraftbridge.phases.dry_starting import CHANGED, accepts_unfenced, waits
from kraftbridge.services.clients import ClusterClients
from kraftbridge.services.copy_outcomes import outcome_of
from kraftbridge.services.dry_start_inputs import Copy, InputReader, Inputs
from kraftbridge.services.facts import Facts
from kraftbridge.services.observe import dry_starts as seen
from kraftbridge.storage.ports import KubernetesPort, Object

logger = logging.getLogger(__name__)

_POD: Final = ("v1", "Pod")
_CONFIG_MAP: Final = ("v1", "ConfigMap")
_LOG_LINES: Final = 400
_MAXIMUM_BYTES: Final = 900_000
"""Of all compressed outcomes. The API server refuses ConfigMaps over 1 MiB."""
_PROBLEM_CHARACTERS: Final = 500
_MOST_PULLS: Final = 200
"""Pods that pull images. All are made at once."""
_CHANGED_POD: Final = "somebody changed the pod while it waited; a copy with that is not started"
_NOT_STARTED: Final = f"it was not started: {DRY_START_PARALLEL} copies run at once, and those before it did not end"


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What a run is made from, read anew for one action."""

    inputs: Inputs
    copies: Sequence[Copy]
    trials: Sequence[Copy]

    @property
    def admitted_alike(self) -> Alike:
        """What admission did to the brokers' running pods."""
        pods = {copied.key.pod: copied for copied, _ in self.copies}
        return alike((copied.stateful_set["spec"]["template"], copied.live) for copied in pods.values())

    def stage(self, plan: DryStartPlan, run: DryStartRunStatus, collected: Mapping[Any, Any]) -> list[Copy]:
        """Return the copies of the run's present stage."""
        stage = DryStartStage.COPIES if run.stage is DryStartStage.PROBE else run.stage
        wanted = copies_in(plan, stage, collected, choosing=run.choosing)
        by_key = {copy.key: (copy, overlay) for copy, overlay in (*self.copies, *self.trials)}
        return [by_key[key] for key in wanted if key in by_key]


@dataclass(frozen=True, slots=True)
class DryStartActs:
    """The actions of one migration's dry start."""

    kubernetes: KubernetesPort
    """Writes only while what the step has decided on still holds."""
    settings: Settings
    facts: Facts
    reader: InputReader
    migration: Migration
    clients: ClusterClients

    @property
    def namespace(self) -> str:
        """Namespace of the migration, and of all that a dry start creates."""
        return self.migration.identity.namespace

    def carry_out(self, action: LaunchRun | FenceRun | ReleaseRun | CollectRun | RemoveRun) -> None:
        """Execute one action. A removal deletes the pods besides (`kraftbridge.services.act.runs`).

        Raises
        ------
        MigrationError
            The API server refuses, or does not answer.
        """
        if isinstance(action, RemoveRun):
            self._clear(action)
            return
        record = self.migration.status.dry_start
        run = None if record is None else record.running
        if run is None or run.run_id != action.run_id:
            return
        match action:
            case LaunchRun():
                self._telling(run, self._launch)
            case FenceRun():
                self._telling(run, self._fence)
            case ReleaseRun():
                self._release(run, action.pods)
            case CollectRun():
                self._collect(run)

    def _telling(self, run: DryStartRunStatus, act: Callable[[DryStartRunStatus], None]) -> None:
        """Act; write why that is not possible into the run's ConfigMap, so that the next step ends the run with it."""
        try:
            act(run)
        except (OvertakenError, ConflictError):
            raise
        except MigrationError as error:
            self._tell(run, str(error))
        except Exception as error:  # preflight must get an answer in any case
            logger.exception("%s/%s: dry start", self.namespace, self.migration.identity.name)
            self._tell(run, f"the operator failed: {type(error).__name__}: {error}")

    def _tell(self, run: DryStartRunStatus, problem: str) -> None:
        logger.warning("%s/%s: dry start: %s", self.namespace, self.migration.identity.name, problem)
        self._write(run, {"data": {PROBLEM_KEY: problem[:_PROBLEM_CHARACTERS]}})

    # ---------------------------------------------------------------------------------------------- launch

    def _launch(self, run: DryStartRunStatus) -> None:
        """Make the pods of the present stage, each behind its gate; before the first ones, record the plan."""
        prepared = self._prepare(run)
        if prepared.inputs.fingerprint != run.digest:
            raise ActionError(CHANGED)
        closed = self._ensure_plan(run, prepared)
        facts = self._facts(run, closed)
        self._ensure_secret(facts, prepared)
        config_map = self.kubernetes.get(*_CONFIG_MAP, self.namespace, run.run_id)
        plan = seen.plan_of(config_map)
        if plan is None:
            raise ActionError(f"ConfigMap {run.run_id} of the dry start vanished")
        if run.stage is DryStartStage.PULLS:
            self._pull(run, facts, plan, prepared)
            return
        wanted = prepared.stage(plan, run, seen.collected_of(config_map))
        made: dict[str, str] = {}
        refused: dict[str, str] = {}
        done = prepared.admitted_alike
        for copy, _ in wanted:
            pod = builder.copy_pod(facts, copy)
            try:
                made[pod["metadata"]["name"]] = _digest(self._make(facts, pod, done))
            except OvertakenError:
                raise
            except ActionError as error:
                refused[pod["metadata"]["name"]] = str(error)
        stage = DryStartStage.COPIES if run.stage is DryStartStage.PROBE else run.stage
        self._record_made(run, stage, MadePods(made, refused))

    def _pull(self, run: DryStartRunStatus, facts: DryStartFacts, plan: DryStartPlan, prepared: _Prepared) -> None:
        """Make the pods that let nodes get images. They start nothing, so no gate holds them back."""
        by_owner = {each.owner: each for each in self.reader.wanted_images(self.migration, prepared.copies)}
        made: dict[str, str] = {}
        refused: dict[str, str] = {}
        for key in plan.pulls:
            name = image_pulls.pull_name(key, run.run_id)
            try:
                self.kubernetes.create(image_pulls.pull_pod(facts, by_owner[key.owner], key))
            except OvertakenError:
                raise
            except ConflictError:
                pass  # an earlier attempt made it
            except ActionError as error:
                refused[name] = str(error)
                continue
            made[name] = ""
        self._record_made(run, DryStartStage.PULLS, MadePods(made, refused))

    def _prepare(self, run: DryStartRunStatus) -> _Prepared:
        inputs = self.reader.read(self.migration)
        copies = self.reader.copies(self.migration, self.clients, run, inputs.sources)
        trials = self.reader.trials(self.migration, copies, choosing=run.choosing)
        return _Prepared(inputs, copies, trials)

    def _ensure_plan(self, run: DryStartRunStatus, prepared: _Prepared) -> tuple[str, ...]:
        """Record what the run sets out to do, unless that is on record; return the addresses that it must not reach."""
        recorded = seen.plan_of(self.kubernetes.get(*_CONFIG_MAP, self.namespace, run.run_id))
        if recorded is not None:
            return recorded.closed
        self._delete_former(run)
        ended = not self.migration.status.phase.reversible
        closed = self.reader.closed(self.migration.identity, self.migration.spec, prepared.inputs.sources, ended=ended)
        pulls, nodes_unknown = self._pulls(run, prepared)
        plan = DryStartPlan(
            tuple(copy.key for copy, _ in prepared.copies),
            tuple(copy.key for copy, _ in prepared.trials),
            closed,
            prepared.inputs.untried,
            pulls,
            nodes_unknown,
        )
        self._write(run, {"data": {PLAN_KEY: seen.PLAN.dump_json(plan).decode()}})
        return closed

    def _pulls(self, run: DryStartRunStatus, prepared: _Prepared) -> tuple[tuple[PullKey, ...], str]:
        """Return whose images each node gets, and why some are not asked, ``""`` if all are.

        A run that only shows the brokers' ids asks none: the next one does.
        """
        if not run.broker_ids:
            return (), ""
        wanted = self.reader.wanted_images(self.migration, prepared.copies)
        try:
            nodes = self.reader.nodes()
        except ObservationError as error:
            return (), str(error)
        keys = tuple(
            PullKey(each.owner, node)
            for node, labels in nodes.items()
            for each in wanted
            if section(each.template, "nodeSelector").items() <= labels.items()
        )
        nowhere = {each.owner for each in wanted} - {key.owner for key in keys}
        if nowhere:
            return keys[:_MOST_PULLS], f"no node that is Ready and not cordoned has the labels for {some(nowhere)}"
        left_out = len(keys) - _MOST_PULLS
        why = f"{_MOST_PULLS} pods get images at most, and {left_out} more were needed" if left_out > 0 else ""
        return keys[:_MOST_PULLS], why

    def _delete_former(self, run: DryStartRunStatus) -> None:
        """Delete what an interruption left of former runs."""
        record = self.migration.status.dry_start
        kept = {run.run_id, "" if record is None else record.run_id}
        facts = self._facts(run, ())
        selector = ",".join(f"{name}={value}" for name, value in facts.labels.items() if name != LABEL_RUN)
        for kind in (_POD, _CONFIG_MAP):
            for obj in self.kubernetes.list(*kind, self.namespace, selector):
                if section(obj, "metadata", "labels").get(LABEL_RUN) in kept and kind != _POD:
                    continue
                self._delete(kind, obj)

    def _delete(self, kind: tuple[str, str], obj: Object) -> None:
        metadata = obj["metadata"]
        self.kubernetes.delete(*kind, self.namespace, metadata["name"], uid=metadata["uid"], grace_seconds=0)

    def _ensure_secret(self, facts: DryStartFacts, prepared: _Prepared) -> None:
        """Write the run's salt and files once: copies of one run must hash with one salt."""
        name = builder.run_name(facts.migration)
        present = self.kubernetes.get("v1", "Secret", facts.namespace, name)
        if _holds_files_of(present, facts.run):
            return
        copies = [copy for copy, _ in (*prepared.copies, *prepared.trials)]
        answers = self.reader.answers(self.migration.identity, prepared.inputs.sources)
        secret = builder.run_secret(facts, secrets.token_hex(32), copies, prepared.inputs.listener, answers)
        self.kubernetes.apply(secret, force=True)

    def _make(self, facts: DryStartFacts, pod: Object, done: Alike) -> Object:
        """Make a gated pod, compare the admitted pod with the requested one, and return it.

        Raises
        ------
        ActionError
            The API server refuses the pod, or admission changed it. A changed pod is deleted before it runs.
        """
        name = pod["metadata"]["name"]
        try:
            admitted: Object | None = self.kubernetes.create(pod)
        except ConflictError:
            admitted = self.kubernetes.get(*_POD, facts.namespace, name)  # an earlier attempt made it
        if admitted is None:
            raise ActionError(f"pod {name}: it is gone")
        problem = ""
        if not admitted["spec"].get("schedulingGates"):
            problem = "the API server does not hold it back (schedulingGates, Kubernetes 1.27)"
        elif changed := additions(pod, admitted, done):
            problem = f"admission of this cluster changed it ({first(changed)}); a copy with that is not started"
        if problem:
            self._delete(_POD, admitted)
            raise ActionError(f"pod {name}: {problem}")
        return admitted

    # ----------------------------------------------------------------------------------- fence and release

    def _fence(self, run: DryStartRunStatus) -> None:
        """Close the run's pods, and let the probe try the fence from inside."""
        config_map = self.kubernetes.get(*_CONFIG_MAP, self.namespace, run.run_id)
        plan = seen.plan_of(config_map)
        if plan is None:
            raise ActionError(f"ConfigMap {run.run_id} of the dry start vanished")
        facts = self._facts(run, plan.closed)
        self.kubernetes.apply(builder.network_policy(facts), force=True)
        pod = builder.probe_pod(facts, plan.closed)
        made = self._make(facts, pod, self._prepare(run).admitted_alike)
        # The scheduler has written why it waits meanwhile, so the version is another one.
        if problem := self._let_go(made, None):
            raise ActionError(f"pod {pod['metadata']['name']}: {problem}")

    def _record_made(self, run: DryStartRunStatus, stage: DryStartStage, made: MadePods) -> None:
        self._write(run, {"data": {stage.made_key: seen.MADE.dump_json(made).decode()}})

    def _release(self, run: DryStartRunStatus, names: Sequence[str]) -> None:
        """Let those of the pods go that are as they were compared; delete those that somebody has changed since."""
        namespace = self.namespace
        made = seen.made_pods(self.kubernetes.get(*_CONFIG_MAP, namespace, run.run_id), run.stage)
        pods = self.kubernetes.list(*_POD, namespace, f"{LABEL_RUN}={run.run_id}")
        decided = made.pods.keys() & set(names)
        waiting = [pod for pod in pods if pod["spec"].get("schedulingGates") and pod["metadata"]["name"] in decided]
        changed = [pod for pod in waiting if _digest(pod) != made.pods[pod["metadata"]["name"]]]
        problems = {pod["metadata"]["name"]: _CHANGED_POD for pod in changed}
        if changed:
            self._record_made(run, run.stage, MadePods(made.pods, {**made.refused, **problems}))
        for pod in changed:
            self._delete(_POD, pod)
        late = {}
        for pod in waiting:
            if pod not in changed and (problem := self._let_go(pod, pod["metadata"]["resourceVersion"])):
                late[pod["metadata"]["name"]] = problem
        if late:
            self._record_made(run, run.stage, MadePods(made.pods, {**made.refused, **problems, **late}))

    def _let_go(self, pod: Object, version: str | None) -> str:
        """Remove a pod's gate; return why it was deleted then, ``""`` if it was not.

        Admission sees this change, too, and may change labels, annotations and images.
        """
        name = pod["metadata"]["name"]
        patch = {"spec": {"schedulingGates": None}}
        let_go = self.kubernetes.merge_patch(*_POD, self.namespace, name, patch, resource_version=version)
        if _digest(let_go) == _digest(pod):
            return ""
        self._delete(_POD, let_go)
        return _CHANGED_POD

    # --------------------------------------------------------------------------------- collect, and clear up

    def _collect(self, run: DryStartRunStatus) -> None:
        """Record what the copies of the stage show, and delete their pods."""
        namespace = self.namespace
        config_map = self.kubernetes.get(*_CONFIG_MAP, namespace, run.run_id)
        plan = seen.plan_of(config_map)
        if plan is None:
            raise ActionError(f"ConfigMap {run.run_id} of the dry start vanished")
        pods = {p["metadata"]["name"]: p for p in self.kubernetes.list(*_POD, namespace, f"{LABEL_RUN}={run.run_id}")}
        refused = seen.made_pods(config_map, run.stage).refused
        if run.stage is DryStartStage.PULLS:
            self._collect_pulls(run, plan, pods, refused)
            return
        prepared = self._prepare(run)
        outcomes = []
        left = []
        for copy, overlay in prepared.stage(plan, run, seen.collected_of(config_map)):
            name = builder.copy_name(copy.key, run.run_id)
            pod = pods.get(name)
            if pod is not None:
                left.append(pod)
            problem = refused.get(name, "")
            if not problem and pod is not None and waits(seen.run_pod(pod), run):
                problem = _NOT_STARTED
            if problem:
                outcome = CopyOutcome(copy.key, copy.broker_id, None, problem, overlay=dict(overlay), judged=False)
            else:
                outcome = outcome_of(copy, overlay, pod, self._log_reader(name), DRY_START_POD_LIMIT.total_seconds())
            outcomes.append(outcome)
        packed = gzip.compress(seen.OUTCOMES.dump_json(tuple(outcomes)), mtime=0)
        written = section(config_map, "binaryData")
        total = len(packed) + sum(len(text) * 3 // 4 for text in written.values())
        if total > _MAXIMUM_BYTES:
            words = f"what its copies showed has {bounds.size(total)}, and {bounds.size(_MAXIMUM_BYTES)} is the most"
            self._write(run, {"data": {PROBLEM_KEY: words}})
            return
        encoded = base64.b64encode(packed).decode()
        self._write(run, {"binaryData": {run.stage.outcomes_key: encoded}})
        for pod in left:
            self._delete(_POD, pod)

    def _collect_pulls(
        self, run: DryStartRunStatus, plan: DryStartPlan, pods: Mapping[str, Object], refused: Mapping[str, str]
    ) -> None:
        """Record which images nodes could not get, and delete the pods."""
        names = {key: image_pulls.pull_name(key, run.run_id) for key in plan.pulls}
        shown = {key: pods.get(name) for key, name in names.items()}
        found = list(untried(shown))
        for key, pod in shown.items():
            found += failures(pod, key, refused.get(names[key], ""), PULL_LIMIT.total_seconds())
        not_pulled = seen.NOT_PULLED.dump_json(tuple(found)).decode()
        nothing = base64.b64encode(gzip.compress(seen.OUTCOMES.dump_json(()), mtime=0)).decode()
        self._write(run, {"data": {NOT_PULLED_KEY: not_pulled}, "binaryData": {run.stage.outcomes_key: nothing}})
        for pod in filter(None, shown.values()):
            self._delete(_POD, pod)

    def _log_reader(self, pod: str) -> Callable[[str], str]:
        def read(container: str) -> str:
            with suppress(MigrationError):  # a container that never ran has no log
                return self.kubernetes.pod_logs(self.namespace, pod, container, _LOG_LINES) or ""
            return ""

        return read

    def _clear(self, action: RemoveRun) -> None:
        """Clear the run's Secret: the operator has no right to delete it. The NetworkPolicy remains."""
        secret = self.kubernetes.get("v1", "Secret", self.namespace, builder.run_name(self.migration.identity.name))
        if _holds_files_of(secret, action.run_id):
            self.kubernetes.apply(builder.run_secret(self._named(action.run_id), "", ()), force=True)

    # ---------------------------------------------------------------------------------------------- objects

    def _facts(self, run: DryStartRunStatus, closed: tuple[str, ...]) -> DryStartFacts:
        return self._named(run.run_id, () if accepts_unfenced(self.migration.spec) else closed)

    def _named(self, run_id: str, closed: tuple[str, ...] = ()) -> DryStartFacts:
        return DryStartFacts(
            namespace=self.namespace,
            migration=self.migration.identity.name,
            uid=self.migration.identity.uid,
            run=run_id,
            operator_image=self.settings.operator_image,
            closed=closed,
            pods=completed(
                self.migration.spec.pods,
                self.facts.pod_defaults(self.namespace, self.migration.spec),
            ),
        )

    def _write(self, run: DryStartRunStatus, change: Mapping[str, Any]) -> None:
        """Write into the run's ConfigMap, which is made where it does not exist."""
        namespace = self.namespace
        metadata = self._named(run.run_id).metadata(run.run_id)
        if self.kubernetes.get(*_CONFIG_MAP, namespace, run.run_id) is None:
            self.kubernetes.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **change})
        else:
            self.kubernetes.merge_patch(*_CONFIG_MAP, namespace, run.run_id, change)


def _digest(pod: Object) -> str:
    """Return a digest of a pod's labels, annotations, and of everything in its spec but its gate."""
    metadata = pod["metadata"]
    parts = [metadata.get("labels"), metadata.get("annotations")]
    return short_hash([*parts, {name: value for name, value in pod["spec"].items() if name != "schedulingGates"}])


def _holds_files_of(secret: Object | None, run_id: str) -> bool:
    """Return whether the Secret has salt and files of this run."""
    return section(secret, "metadata", "labels").get(LABEL_RUN) == run_id and bool(section(secret, "data").get("salt"))
