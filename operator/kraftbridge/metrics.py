"""Prometheus metrics of the operator; names and labels are API (``docs/operations.md``)."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

PHASE = Gauge("kraftbridge_migration_phase", "1 for the phase that a migration is in", ["namespace", "name", "phase"])
CONDITION = Gauge(
    "kraftbridge_condition", "1 for the status that a condition has", ["namespace", "name", "type", "status"]
)
STEP_SECONDS = Histogram("kraftbridge_step_duration_seconds", "Duration of one step: observe, decide, publish, act")
OBSERVATION_ERRORS = Counter(
    "kraftbridge_observation_errors_total", "Looks that failed, by what was looked at", ["source"]
)
ACTIONS = Counter("kraftbridge_actions_total", "Acts by kind and outcome", ["action", "outcome"])
DIFFERING = Gauge(
    "kraftbridge_verification_differing_entities",
    "Entities that differed in the last verification",
    ["namespace", "name", "profile"],
)
