"""Findings about the brokers' log directories: what is in them that does not belong there. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kraftbridge.models.catalogue import Code
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.status import FindingStatus, finding, first
from kraftbridge.models.survey import LogDir, Survey
from kraftbridge.models.volumes import where_not_kept
from kraftbridge.phases.draft import StepContext
from kraftbridge.phases.observed import answers, brokers_of

_SHOWN_REPLICAS = 10


def findings(step: StepContext, survey: Survey) -> Iterator[FindingStatus]:
    """Find directories that no pod finds again, that failed, or that hold what does not belong there."""
    if isinstance(survey.log_dirs, Unobserved):
        if not isinstance(survey.visibility, Unobserved):  # else another finding reports that no broker answers
            yield finding(Code.LOG_DIRS_UNKNOWN, "brokers", reason=survey.log_dirs)
        return
    yield from _not_kept(step, survey.log_dirs)
    hidden = _hidden_topics(survey)
    for broker in sorted(survey.log_dirs.keys() | step.registered_broker_ids().values()):
        directories = survey.log_dirs.get(broker, Unobserved(f"broker {broker}", "Kafka does not list it as running"))
        if isinstance(directories, Unobserved):
            yield finding(Code.LOG_DIRS_UNKNOWN, f"broker/{broker}", reason=directories)
            continue
        for directory in directories:
            yield from _directory(broker, directory, hidden)


def _not_kept(step: StepContext, log_dirs: Mapping[int, tuple[LogDir, ...] | Unobserved]) -> Iterator[FindingStatus]:
    """Find directories that are not on a claim, by what the copies of the pods show, else by the pod template."""
    ids = step.registered_broker_ids()
    mounts = {ids.get(pod.name): item.mounts for item, pod in brokers_of(step)}
    points = _mount_points(step)
    for broker, directories in sorted(answers(log_dirs).items()):
        if broker not in mounts:
            continue  # another finding reports it
        for directory in directories:
            path = directory.path
            if where := where_not_kept(mounts[broker], path, points.get((broker, path), "")):
                yield finding(
                    Code.DATA_NOT_ON_CLAIM, f"broker/{broker} {path}", broker=broker, directory=path, where=where
                )


def _mount_points(step: StepContext) -> dict[tuple[int, str], str]:
    """Return what the copies in the present mode show to be mounted, by broker and directory."""
    state = step.observation.dry_start
    if isinstance(state, Unobserved) or state.current is None:
        return {}
    present = [copy for copy in state.current.copies if copy.key.mode is BrokerMode.ZOOKEEPER]
    starts = [(copy.broker_id, copy.start) for copy in present if copy.start is not None]
    return {(broker, path): point for broker, start in starts for path, point in start.mount_points.items()}


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
    yield from left_over(broker, directory, hidden)
    if directory.future:
        replicas = first(directory.future, _SHOWN_REPLICAS)
        yield finding(Code.REPLICAS_MOVING, name, broker=broker, directory=path, replicas=replicas)


def left_over(broker: int, directory: LogDir, hidden: frozenset[str] = frozenset()) -> Iterator[FindingStatus]:
    """Find replicas in a directory that no topic assigns to its broker.

    Parameters
    ----------
    hidden
        Topics that the principal may not see: nobody can tell whose their replicas are.
    """
    leftovers = [replica for replica in directory.leftovers if replica.rpartition("-")[0] not in hidden]
    if leftovers:
        yield finding(
            Code.LEFTOVER_REPLICAS,
            f"broker/{broker} {directory.path}",
            broker=broker,
            directory=directory.path,
            count=len(leftovers),
            replicas=first(leftovers, _SHOWN_REPLICAS),
        )
