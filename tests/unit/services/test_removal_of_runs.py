"""What is removed of a run, by its row, and what counts as left."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.fakes import Clock, FakeKubernetes, Killed

from kraftbridge.constants import LABEL_RUN
from kraftbridge.models.decision import RemoveRun
from kraftbridge.models.runs import RUNS, RunKind
from kraftbridge.models.status import RetiredRun
from kraftbridge.services.act.runs import remove
from kraftbridge.services.observe.runs import left_runs

RUN = "demo-run-1"
RIGHTS = ("ConfigMap", "Role", "RoleBinding")
"""Kinds of what gives a run its rights: the first owns the others."""


def objects(kind: RunKind) -> list[tuple[str, str]]:
    """Return kind and name of everything that a run of this kind is made of."""
    row = RUNS[kind]
    report = row.report(RUN)
    return [
        *((workload, RUN) for _, workload in row.workloads),
        *((what, row.rights(RUN)) for what in RIGHTS if row.has_rights),
        *([] if row.workloads else [("Pod", "copy"), ("Pod", "probe")]),
        ("ConfigMap", report),
    ]


def cluster(kind: RunKind) -> FakeKubernetes:
    kubernetes = FakeKubernetes(Clock())
    for what, name in objects(kind):
        metadata: dict[str, Any] = {"name": name, "namespace": "kafka", "labels": {LABEL_RUN: RUN}}
        owner = kubernetes.objects.get(("ConfigMap", "kafka", RUNS[kind].rights(RUN)))
        if what in RIGHTS[1:] and owner is not None:
            metadata["ownerReferences"] = [{"uid": owner["metadata"]["uid"]}]
        kubernetes.create({"apiVersion": "v1", "kind": what, "metadata": metadata})
    other = {"name": "another", "namespace": "kafka", "labels": {LABEL_RUN: "another"}}
    kubernetes.create({"apiVersion": "v1", "kind": "Pod", "metadata": other})
    return kubernetes


@pytest.mark.parametrize("keep_report", [True, False])
@pytest.mark.parametrize("kind", RunKind)
def test_everything_of_a_run_goes_and_nothing_else(kind: RunKind, keep_report: bool) -> None:
    kubernetes = cluster(kind)
    run = RetiredRun(kind=kind, run_id=RUN, keep_report=keep_report, asked_at=Clock().now)
    assert left_runs(kubernetes, "kafka", (run,)) == {RUN}
    remove(kubernetes, "kafka", RemoveRun(kind, RUN, keep_report))
    report = [("ConfigMap", RUNS[kind].report(RUN))] if keep_report else []
    assert [(what, name) for what, _, name in kubernetes.objects] == [*report, ("Pod", "another")]
    assert left_runs(kubernetes, "kafka", (run,)) == frozenset()


@pytest.mark.parametrize("kind", RunKind)
def test_a_removal_that_dies_at_any_deletion_counts_as_left(kind: RunKind) -> None:
    run = RetiredRun(kind=kind, run_id=RUN, keep_report=True, asked_at=Clock().now)
    # Garbage collection deletes what is owned; the report stays.
    deletions = len([what for what, _ in objects(kind) if what not in RIGHTS[1:]]) - 1
    for last in range(deletions):
        kubernetes = cluster(kind)
        seen: list[str] = []

        def die(verb: str, *_: Any, seen: list[str] = seen, last: int = last) -> None:
            seen += [verb] * (verb == "delete")
            if len(seen) > last:
                raise Killed

        kubernetes.before_call = die
        with pytest.raises(Killed):
            remove(kubernetes, "kafka", RemoveRun(kind, RUN, keep_report=True))
        kubernetes.before_call = lambda *_: None
        assert left_runs(kubernetes, "kafka", (run,)) == {RUN}, f"after {last} of {deletions} deletions"
