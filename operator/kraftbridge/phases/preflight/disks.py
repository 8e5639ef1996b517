"""Findings about the brokers' log directories: what is in them that does not belong there. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from kraftbridge.models.catalogue import Code
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.status import FindingStatus, finding, first
from kraftbridge.models.survey import LogDir, Survey

_SHOWN_REPLICAS = 10


def findings(survey: Survey) -> Iterator[FindingStatus]:
    """Find failed directories, replicas that nobody assigned, and replicas that are moved between directories."""
    if isinstance(survey.log_dirs, Unobserved):
        if not isinstance(survey.visibility, Unobserved):  # else another finding reports that no broker answers
            yield finding(Code.LOG_DIRS_UNKNOWN, "brokers", reason=survey.log_dirs)
        return
    hidden = _hidden_topics(survey)
    for broker, directories in sorted(survey.log_dirs.items()):
        if isinstance(directories, Unobserved):
            yield finding(Code.LOG_DIRS_UNKNOWN, f"broker/{broker}", reason=directories)
            continue
        for directory in directories:
            yield from _directory(broker, directory, hidden)


def _hidden_topics(survey: Survey) -> frozenset[str]:
    """Return the topics that the principal may not see: nobody can tell whose their replicas are."""
    if isinstance(survey.zookeeper, Unobserved) or isinstance(survey.visibility, Unobserved):
        return frozenset()
    return survey.zookeeper.topics - survey.visibility.topics


def _directory(broker: int, directory: LogDir, hidden: frozenset[str]) -> Iterator[FindingStatus]:
    path = directory.path
    name = f"broker/{broker} {path}"
    if directory.error:
        yield finding(Code.LOG_DIR_OFFLINE, name, broker=broker, directory=path, error=directory.error)
    if leftovers := [replica for replica in directory.leftovers if replica.rpartition("-")[0] not in hidden]:
        yield finding(
            Code.LEFTOVER_REPLICAS,
            name,
            broker=broker,
            directory=path,
            count=len(leftovers),
            replicas=first(leftovers, _SHOWN_REPLICAS),
        )
    if directory.future:
        replicas = first(directory.future, _SHOWN_REPLICAS)
        yield finding(Code.REPLICAS_MOVING, name, broker=broker, directory=path, replicas=replicas)
