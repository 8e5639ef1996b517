"""What controllers and verifications request."""

from __future__ import annotations

import pytest
from tests.support.observations import spec_document

from kraftbridge.models.spec import MigrationSpec, Runner
from kraftbridge.services.observe.demand import run_demand


@pytest.mark.parametrize(
    ("runner", "memory", "mebibytes"),
    [
        (Runner.JOB, "768m", {"verifier": 1024}),
        (Runner.SPARK_APPLICATION, "768m", {"driver": 1152, "executor 1": 1152, "executor 2": 1152}),
        (Runner.SPARK_APPLICATION, "2g", {"driver": 1152, "executor 1": 2867, "executor 2": 2867}),
    ],
)
def test_demand_is_what_spark_will_request(runner: Runner, memory: str, mebibytes: dict[str, int]) -> None:
    document = spec_document(verification={"executors": 2, "executorMemory": memory})
    demand = run_demand(MigrationSpec.model_validate(document), runner)
    assert {pod.name: (pod.memory_request or 0) >> 20 for pod in demand} == mebibytes
    assert {pod.cpu_request for pod in demand} == {50}
