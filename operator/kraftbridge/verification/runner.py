"""Starts runs: at once, or armed and waiting for the operator's go."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from kraftbridge.metadata.errors import MetadataError
from kraftbridge.models.report import Verdict, VerificationReport, VerificationRequest
from kraftbridge.verification.configmap import RunConfigMap
from kraftbridge.verification.inputs import Inputs, live_inputs
from kraftbridge.verification.job import run_report
from kraftbridge.verification.run import Run
from kraftbridge.verification.session import open_session, warm_up

logger = logging.getLogger(__name__)


def verify(session: SparkSession, request: VerificationRequest, inputs: Inputs) -> VerificationReport:
    """Return the report of one run."""
    return run_report(Run(session, request, inputs))


def verify_live(session: SparkSession, request: VerificationRequest) -> VerificationReport:
    """Return the report of one run over a live cluster; what cannot be reached makes it `Inconclusive`."""
    started, began = datetime.now(UTC), time.monotonic()
    try:
        inputs = live_inputs(request)
    except MetadataError as error:
        return VerificationReport(
            run_id=request.run_id,
            migration_uid=request.migration_uid,
            generation=request.generation,
            phase=request.phase,
            profile=request.profile,
            verdict=Verdict.INCONCLUSIVE,
            reason=str(error),
            problems=[str(error)],
            started_at=started,
            finished_at=datetime.now(UTC),
        )
    run = Run(session, request, inputs)
    run.timings["ask quorum"] = round(time.monotonic() - began, 3)
    return run_report(run)


def immediate_run(request: VerificationRequest) -> VerificationReport:
    """Open a session and verify."""
    return verify_live(open_session(local=True), request)


def armed_run(config_map: RunConfigMap) -> VerificationReport:
    """Open a session, warm it unless the go is there already, wait for the go, verify, and write the verdict into the ConfigMap.

    Raises
    ------
    NotWantedError
        The go did not come in time.
    """
    request = config_map.request()
    session = open_session(local=True)
    if config_map.go(request.run_id) is None:  # else the gate waits: every second counts
        warm_up(session)
    config_map.announce(request.run_id)
    logger.info("run %s is armed: waiting for its go", request.run_id)
    go = config_map.await_go(request.run_id, request.armed_deadline_seconds)
    logger.info("go for run %s, given at %s", go.run_id, go.at)
    report = verify_live(session, request)
    config_map.publish(report)
    return report
