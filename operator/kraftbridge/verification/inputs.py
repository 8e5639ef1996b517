"""What a run reads: the places of a live cluster, or copies of them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kraftbridge.metadata.errors import LogUnavailableError, MetadataError
from kraftbridge.metadata.log.files import LOG_FOLDER, open_log_files
from kraftbridge.metadata.log.replay import end_offset
from kraftbridge.models.report import BrokerAccess, Profile, VerificationRequest, VoterState, ZooKeeperAccess
from kraftbridge.verification.quorum import QuorumUnavailableError, QuorumView, describe_quorum
from kraftbridge.verification.sources.brokers import brokers_behind
from kraftbridge.verification.sources.rows import LogVoter

_QUORUM_STATE: Final = "quorum-state"


@dataclass(frozen=True, slots=True)
class Dump:
    """A dump of a ZooKeeper tree."""

    path: Path
    chroot: str


@dataclass(slots=True)
class Inputs:
    """Where everything is.

    Attributes
    ----------
    zookeeper
        A live ensemble or a dump; None where the profile does not need it.
    voters
        Logs; the one with `mirrored` is compared with ZooKeeper and with brokers.
    states
        What is known of each voter, in the same order.
    replicas_offset
        Offset, inclusive, at which the voters' images are compared: committed, and in every voter's log.
    live
        Whether in-flight entities can be read again.
    """

    profile: Profile
    zookeeper: ZooKeeperAccess | Dump | None
    voters: list[LogVoter]
    states: list[VoterState]
    live: bool
    replicas_offset: int | None = None
    high_watermark: int | None = None
    leader_id: int | None = None
    leader_epoch: int | None = None
    brokers: Sequence[BrokerAccess] = ()
    token_path: str | None = None
    ca_path: str | None = None
    client_config_path: str | None = None
    encoder_secret_path: str | None = None


class BadInputError(MetadataError):
    """What was given does not allow to begin."""


def live_inputs(request: VerificationRequest) -> Inputs:
    """Return what a request names, with the quorum's own view of its logs.

    Raises
    ------
    MetadataError
        A place that the profile needs is missing from the request, or no voter's log can be reached.
    """
    needs_zookeeper = request.profile is not Profile.REPLICAS
    needs_logs = request.profile is not Profile.ZOOKEEPER
    if needs_zookeeper and request.zookeeper is None:
        raise BadInputError(f"profile {request.profile} needs `zookeeper`")
    if needs_logs and not request.voters:
        raise BadInputError(f"profile {request.profile} needs `voters`")
    inputs = Inputs(
        profile=request.profile,
        zookeeper=request.zookeeper if needs_zookeeper else None,
        voters=[],
        states=[],
        live=True,
        brokers=_brokers(request) if request.compare_served else (),
        token_path=request.token_path,
        ca_path=request.ca_path,
        client_config_path=request.client_config_path,
        encoder_secret_path=request.password_encoder_secret_path,
    )
    if not needs_logs:
        return inputs
    inputs.voters = [LogVoter(id=voter.id, name=str(voter.id), url=voter.log_url) for voter in request.voters]
    inputs.states = [VoterState(id=voter.id, name=str(voter.id)) for voter in request.voters]
    if any(voter.host for voter in request.voters):
        _apply_view(inputs, describe_quorum(request.voters, request.controller_config_path))
    else:
        _apply_logs(inputs)
    return inputs


def _brokers(request: VerificationRequest) -> Sequence[BrokerAccess]:
    if request.brokers:
        return request.brokers
    if not request.bootstrap_servers:
        raise BadInputError("what brokers serve is to be compared: `brokers` or `bootstrapServers` is needed")
    return brokers_behind(request.bootstrap_servers, request.client_config_path)


def _apply_view(inputs: Inputs, view: QuorumView) -> None:
    known = {voter.id for voter in inputs.voters}
    if known != view.end_offsets.keys():
        raise QuorumUnavailableError(
            f"the quorum's voters are {sorted(view.end_offsets)}, the request names {sorted(known)}: all are needed"
        )
    silent = sorted(voter for voter, end in view.end_offsets.items() if end < 0)
    if silent:  # `LeaderState`: no fetch since the election
        raise QuorumUnavailableError(
            f"voter(s) {silent} have not fetched from leader {view.leader_id} since it was elected: is each up, and can it write its log?"
        )
    inputs.high_watermark = view.high_watermark
    inputs.leader_id, inputs.leader_epoch = view.leader_id, view.leader_epoch
    inputs.states = [
        state.model_copy(update={"reported_end_offset": view.end_offsets[state.id]}) for state in inputs.states
    ]
    committed = min(view.high_watermark, *view.end_offsets.values())
    inputs.replicas_offset = committed - 1
    inputs.voters = [voter.model_copy(update={"mirrored": voter.id == view.leader_id}) for voter in inputs.voters]


def _apply_logs(inputs: Inputs) -> None:
    """Without a quorum to ask: the longest log stands for the leader's, and what all logs hold counts as committed."""
    ends: dict[int, int] = {}
    for index, voter in enumerate(inputs.voters):
        try:
            ends[index] = end_offset(open_log_files(voter.url, inputs.token_path, inputs.ca_path))
        except MetadataError as error:
            raise type(error)(f"voter {voter.name}: {error}") from error
    longest = max(ends, key=lambda index: (ends[index], -index))
    leader = next((index for index, voter in enumerate(inputs.voters) if voter.mirrored), longest)
    if ends[leader] < ends[longest]:
        leader = longest
    inputs.voters = [
        voter.model_copy(update={"mirrored": index == leader}) for index, voter in enumerate(inputs.voters)
    ]
    inputs.states = [state.model_copy(update={"end_offset": ends[index]}) for index, state in enumerate(inputs.states)]
    inputs.leader_id = inputs.leader_id if inputs.leader_id is not None else inputs.voters[leader].id
    inputs.replicas_offset = min(ends.values()) - 1


def offline_inputs(
    profile: Profile, dump: Dump | None, voters: Sequence[tuple[str, Path]], encoder_secret_path: str | None
) -> Inputs:
    """Return what copies of a cluster's data hold.

    Parameters
    ----------
    voters
        Name and folder of each log; the folder holds `__cluster_metadata-0`.
    """
    if profile is not Profile.REPLICAS and dump is None:
        raise BadInputError(f"profile {profile} needs a ZooKeeper dump (--zookeeper)")
    if profile is not Profile.ZOOKEEPER and not voters:
        raise BadInputError(f"profile {profile} needs the log of a voter (--voter NAME=DIRECTORY)")
    if profile is Profile.REPLICAS and len(voters) == 1:
        raise BadInputError("profile replicas needs the logs of at least two voters")
    names = [name for name, _ in voters]
    if len(set(names)) != len(names):
        raise BadInputError(f"voters have the same name: {', '.join(names)}")
    if dump is not None and not dump.path.is_file():
        raise BadInputError(f"ZooKeeper dump {dump.path} does not exist")
    inputs = Inputs(
        profile=profile,
        zookeeper=dump if profile is not Profile.REPLICAS else None,
        voters=[],
        states=[],
        live=False,
        encoder_secret_path=encoder_secret_path,
    )
    if profile is Profile.ZOOKEEPER:
        return inputs
    identities = _identities(names)
    leaders = {leader for _, folder in voters if (leader := _recorded_leader(folder)) is not None}
    for (name, folder), identity in zip(voters, identities, strict=True):
        if not folder.is_dir():
            raise LogUnavailableError(f"voter {name}: {folder} is not a folder")
        inputs.voters.append(
            LogVoter(id=identity, name=name, url=folder.resolve().as_uri(), mirrored=leaders == {identity})
        )
        inputs.states.append(VoterState(id=identity, name=name))
    inputs.leader_id = next(iter(leaders)) if len(leaders) == 1 else None
    _apply_logs(inputs)
    return inputs


def _identities(names: Sequence[str]) -> list[int]:
    """Return node ids from names such as ``c3000``; positions where names don't tell."""
    numbers = [re.search(r"(\d+)$", name) for name in names]
    identities = [int(match[1]) for match in numbers if match]
    if len(set(identities)) == len(names):
        return identities
    return list(range(len(names)))


def _recorded_leader(folder: Path) -> int | None:
    for candidate in (folder / LOG_FOLDER / _QUORUM_STATE, folder / _QUORUM_STATE):
        try:
            leader = json.loads(candidate.read_text(encoding="utf-8")).get("leaderId")
        except (OSError, ValueError, AttributeError):
            continue
        if isinstance(leader, int) and leader >= 0:
            return leader
    return None
