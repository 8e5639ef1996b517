"""Reads parts of the observation that may be unknown, and words what is known. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from kraftbridge.models.observation import PodState, StatefulSetState, Unobserved
from kraftbridge.models.survey import BrokerSetting, Survey
from kraftbridge.phases.draft import StepContext

K = TypeVar("K")
T = TypeVar("T")


def observed(part: T | Unobserved, otherwise: T) -> T:
    """Return a part of the observation, ``otherwise`` if it is unknown."""
    return otherwise if isinstance(part, Unobserved) else part


def answers(parts: Mapping[K, T | Unobserved]) -> dict[K, T]:
    """Return those that answered."""
    return {key: part for key, part in parts.items() if not isinstance(part, Unobserved)}


def read_sets(step: StepContext) -> tuple[StatefulSetState, ...]:
    """Return the brokers' StatefulSets, none unless all of them were read."""
    return observed(step.stateful_sets(), ())


def broker_pods(step: StepContext) -> list[PodState]:
    """Return the brokers' pods, none unless all StatefulSets were read."""
    return [pod for stateful_set in read_sets(step) for pod in stateful_set.pods]


def told_settings(survey: Survey) -> dict[int, tuple[BrokerSetting, ...]]:
    """Return the running settings of each broker that answered."""
    nobody: Mapping[int, tuple[BrokerSetting, ...] | Unobserved] = {}
    return answers(observed(survey.brokers, nobody))


def because(reason: str) -> str:
    """Return a reason as the end of a sentence, ``""`` without one."""
    return f": {reason}" if reason else ""
