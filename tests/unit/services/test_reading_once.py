"""What a step observes is one picture: each object is read once, nobody changes it, and no act decides on it."""

from __future__ import annotations

import copy
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest
from tests.support.fakes import Clock, FakeKubernetes
from tests.unit.services.conftest import Operator

from kraftbridge.exceptions import ObservationError
from kraftbridge.models.phase import Phase
from kraftbridge.services.observe import reading
from kraftbridge.services.observe.observer import Observer
from kraftbridge.services.observe.reading import ReadOnce


class Counted:
    """The API server as the observers see it, with what they ask in each step."""

    def __init__(self, kubernetes: Any) -> None:
        self._kubernetes = kubernetes
        self.steps: list[Counter[tuple[Any, ...]]] = []

    def __getattr__(self, verb: str) -> Any:
        call = getattr(self._kubernetes, verb)

        def counted(*args: Any, **more: Any) -> Any:
            if verb in ("get", "list"):
                self.steps[-1][(verb, *args, *more.values())] += 1
            return call(*args, **more)

        return counted


@pytest.fixture
def counted(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Count what is asked in each step from its observation on."""
    reads: Any = operator.reconciler._reads
    reads._reads = counted = Counted(reads._reads)
    observe = Observer.observe

    def counting(self: Observer, *args: Any) -> Any:
        counted.steps.append(Counter())
        observation = observe(self, *args)
        counted.steps.append(Counter())  # what acts ask afterwards
        return observation

    monkeypatch.setattr(Observer, "observe", counting)
    counted.steps.append(Counter())
    return counted


def test_no_object_is_read_twice_in_a_step(operator: Operator, counted: Counted) -> None:
    operator.walk(Phase.COMPLETED)
    operator.rest()
    observed = counted.steps[1::2]
    assert len(observed) > 20
    assert sum(map(Counter.total, observed)) > 500
    twice = [question for step in observed for question, times in step.items() if times > 1]
    assert twice == []


def test_nobody_changes_what_others_read(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[tuple[Any, Any]] = []
    once = reading._Readings.once

    def keeping(self: Any, question: Any, read: Any) -> Any:
        answer = once(self, question, read)
        answers.append((answer, copy.deepcopy(answer)))
        return answer

    monkeypatch.setattr(reading._Readings, "once", keeping)
    operator.walk(Phase.COMPLETED)
    operator.rest()
    assert len(answers) > 100
    assert all(answer == as_read for answer, as_read in answers)


class Slow(FakeKubernetes):
    """An API server that fails at the first question and takes its time."""

    def __init__(self) -> None:
        super().__init__(Clock())
        self.asked = 0
        self.together = threading.Barrier(4)

    def get(self, *args: Any) -> Any:
        self.asked += 1
        raise ObservationError("API server", f"refused {self.asked}")


def test_an_error_is_everybodys_in_the_step_and_asked_again_in_the_next() -> None:
    kubernetes = Slow()
    reads = ReadOnce(kubernetes)

    def ask() -> str:
        kubernetes.together.wait(5)
        try:
            reads.get("v1", "Secret", "kafka", "one")
        except ObservationError as error:
            return error.reason
        return ""

    with ThreadPoolExecutor(4) as pool:
        with reads.step():
            words = {f.result() for f in [pool.submit(copy_context().run, ask) for _ in range(4)]}
        assert words == {"refused 1"}
        with reads.step(), pytest.raises(ObservationError, match="refused 2"):
            reads.get("v1", "Secret", "kafka", "one")


def test_outside_of_a_step_everything_is_read_anew() -> None:
    kubernetes = FakeKubernetes(Clock())
    reads = ReadOnce(kubernetes)
    with reads.step():
        assert reads.get("v1", "Secret", "kafka", "one") is None
        kubernetes.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one", "namespace": "kafka"}})
        assert reads.get("v1", "Secret", "kafka", "one") is None
    assert reads.get("v1", "Secret", "kafka", "one") is not None
