"""What controllers and verifications request."""

from __future__ import annotations

import pytest
from tests.support.observations import spec_document

from kraftbridge.models.spec import MigrationSpec, Runner
from kraftbridge.services.observe.survey import run_demand


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


@pytest.mark.parametrize(("memory", "mebibytes"), [("768m", 1920), ("2g", 4505), ("512m", 1664)])
def test_a_driver_without_executors_asks_for_their_python_too(memory: str, mebibytes: int) -> None:
    spec = MigrationSpec.model_validate(spec_document(verification={"executors": 0, "driverMemory": memory}))
    (driver,) = run_demand(spec, Runner.SPARK_APPLICATION)
    assert (driver.name, (driver.memory_request or 0) >> 20) == ("driver", mebibytes)
    assert driver.memory_limit == driver.memory_request
