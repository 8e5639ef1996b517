"""Runs whose Job gets no pod: the API server's answer is told with what to do, and nothing is made up where it is not known."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.fakes import Clock, FakeKubernetes
from tests.support.observations import IDENTITY, NOW, REHEARSAL, REHEARSED, RUN_ID, record

from kraftbridge.builders import names
from kraftbridge.constants import LABEL_RUN
from kraftbridge.exceptions import ObservationError
from kraftbridge.models.observation import RehearsalProgress, RunState, VerificationRun
from kraftbridge.models.phase import Phase
from kraftbridge.models.report import Profile
from kraftbridge.models.status import MigrationStatus, RehearsalRunStatus, RehearsalStatus
from kraftbridge.services.observe.runs import last_run, running_rehearsal

ACCOUNT = (
    'Error creating: pods "x-" is forbidden: error looking up service account kafka/v: serviceaccount "v" not found'
)
NAMESPACE = IDENTITY.namespace


@pytest.fixture
def kubernetes() -> FakeKubernetes:
    found = FakeKubernetes(Clock())
    add(found, "ConfigMap", names.verification_config_map(RUN_ID))
    add(found, "Job", RUN_ID, uid="job")
    return found


def add(kubernetes: FakeKubernetes, kind: str, name: str, uid: str = "u", **more: Any) -> dict[str, Any]:
    made = {"kind": kind, "metadata": {"name": name, "namespace": NAMESPACE, "uid": uid}, **more}
    kubernetes.objects[kind, NAMESPACE, name] = made
    return made


def refuse(kubernetes: FakeKubernetes, message: str, job: str = RUN_ID, **more: Any) -> None:
    involved = {"kind": "Job", "name": job, "uid": "job"}
    event = {"involvedObject": involved, "reason": "FailedCreate", "message": message, "count": 2, **more}
    add(kubernetes, "Event", f"event-{len(kubernetes.objects)}", **event)


def look(kubernetes: FakeKubernetes) -> VerificationRun:
    unfinished = record(Profile.DUAL_WRITE, Phase.ROLLING_BROKERS, verdict=None, finished=False)
    return last_run(kubernetes, IDENTITY, MigrationStatus(verifications=(unfinished,)))


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (ACCOUNT, "Create the service account in namespace kafka, or name another one in spec.verification.serviceAccount"),
        ('Error creating: pods "x-" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0', "Raise the ResourceQuota of namespace kafka, or change what spec.verification requests"),
        ('Error creating: pods "x-" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true', "change spec.pods.securityContext"),
        ('Error creating: admission webhook "signed.example.com" denied the request: image is not signed', "Let the admission policy that refuses it admit the pods of spec.verification"),
        ('Error creating: pods "x-" is forbidden: maximum memory usage per Container is 64Mi, but limit is 1Gi', "Change the LimitRange of namespace kafka"),
        ("Error creating: something new", "Remove the cause that the answer names in namespace kafka"),
    ],
)  # fmt: skip
def test_what_the_api_server_says_is_told_with_what_to_do(kubernetes: FakeKubernetes, message: str, told: str) -> None:
    refuse(kubernetes, message)
    run = look(kubernetes)
    assert run.state is RunState.CANNOT_START
    assert run.message.startswith(
        f"Job {RUN_ID} has no pod, because the API server refuses it: {message[16:40].strip()}"
    )
    assert told in run.message


def test_one_refusal_is_told_and_the_job_controller_tries_again(kubernetes: FakeKubernetes) -> None:
    refuse(kubernetes, ACCOUNT, count=1)
    run = look(kubernetes)
    assert run.state is RunState.PENDING
    assert 'serviceaccount "v" not found' in run.message
    refuse(kubernetes, ACCOUNT, count=None, series={"count": 4})
    assert look(kubernetes).state is RunState.CANNOT_START


def test_refusals_of_another_job_of_that_name_are_not_this_ones(kubernetes: FakeKubernetes) -> None:
    refuse(kubernetes, ACCOUNT, involvedObject={"kind": "Job", "name": RUN_ID, "uid": "an earlier one"})
    refuse(kubernetes, ACCOUNT, reason="SuccessfulCreate")
    assert look(kubernetes) == VerificationRun(RUN_ID, RunState.PENDING)


@pytest.mark.parametrize("count", ["active", "ready", "failed"])
def test_a_job_that_has_a_pod_was_refused_in_vain(kubernetes: FakeKubernetes, count: str) -> None:
    refuse(kubernetes, ACCOUNT)
    kubernetes.objects["Job", NAMESPACE, RUN_ID]["status"] = {count: 1}
    assert look(kubernetes) == VerificationRun(RUN_ID, RunState.PENDING)


def test_events_that_cannot_be_read_hold_nothing_up(kubernetes: FakeKubernetes) -> None:
    def denied(verb: str, kind: str, _: str) -> None:
        if (verb, kind) == ("list", "Event"):
            raise ObservationError("Event objects in namespace kafka", "403 Forbidden")

    kubernetes.before_call = denied
    run = look(kubernetes)
    assert run.state is RunState.PENDING
    assert "403 Forbidden" in run.message
    assert f"kubectl -n kafka describe job {RUN_ID} tells" in run.message


@pytest.mark.parametrize(("status", "fails"), [("True", True), ("False", False), ("Unknown", False)])
def test_only_a_failure_that_is_true_ends_a_run(kubernetes: FakeKubernetes, status: str, *, fails: bool) -> None:
    failed = {"conditions": [{"type": "Failed", "status": status, "reason": "BackoffLimitExceeded", "message": "m"}]}
    add(kubernetes, "Job", RUN_ID, uid="job", status=failed)
    assert look(kubernetes).state is (RunState.FAILED if fails else RunState.PENDING)
    add(kubernetes, "ConfigMap", REHEARSAL)
    add(kubernetes, "Job", REHEARSAL, uid="job", status=failed)
    running = RehearsalRunStatus(run_id=REHEARSAL, digest=REHEARSED, launched_at=NOW)
    found = running_rehearsal(
        kubernetes, IDENTITY, MigrationStatus(rehearsal=RehearsalStatus(count=1, running=running))
    )
    assert found is not None
    assert found.progress is (RehearsalProgress.CANNOT_START if fails else RehearsalProgress.READING)


def test_a_rehearsal_that_gets_no_pod_says_why(kubernetes: FakeKubernetes) -> None:
    add(kubernetes, "ConfigMap", REHEARSAL)
    add(kubernetes, "Job", REHEARSAL, uid="job")
    running = RehearsalRunStatus(run_id=REHEARSAL, digest=REHEARSED, launched_at=NOW)
    current = MigrationStatus(rehearsal=RehearsalStatus(count=1, running=running))
    found = running_rehearsal(kubernetes, IDENTITY, current)
    assert found is not None
    assert (found.progress, found.message) == (RehearsalProgress.READING, "it has no pod yet")
    refuse(kubernetes, ACCOUNT, REHEARSAL)
    found = running_rehearsal(kubernetes, IDENTITY, current)
    assert found is not None
    assert found.progress is RehearsalProgress.CANNOT_START
    assert "or name another one in spec.pods.serviceAccountName" in found.message


@pytest.mark.parametrize(
    ("container", "progress"),
    [("broker-0", RehearsalProgress.UNFENCED), ("controller", RehearsalProgress.CANNOT_START)],
)
def test_a_broker_that_cannot_be_started_does_not_end_a_rehearsal(
    kubernetes: FakeKubernetes, container: str, progress: RehearsalProgress
) -> None:
    """Kafka's migration is judged all the same."""
    add(kubernetes, "ConfigMap", REHEARSAL)
    add(kubernetes, "Job", REHEARSAL, uid="job")
    waits = {"name": container, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "denied"}}}
    read = {"name": "read", "state": {"terminated": {"exitCode": 0}}}
    status = {"initContainerStatuses": [read], "containerStatuses": [waits]}
    pod = {"metadata": {"name": "p", "namespace": NAMESPACE, "labels": {LABEL_RUN: REHEARSAL}}, "status": status}
    kubernetes.objects["Pod", NAMESPACE, "p"] = pod
    running = RehearsalRunStatus(run_id=REHEARSAL, digest=REHEARSED, launched_at=NOW)
    found = running_rehearsal(
        kubernetes, IDENTITY, MigrationStatus(rehearsal=RehearsalStatus(count=1, running=running))
    )
    assert found is not None
    assert found.progress is progress
