"""The inputs of a run: the places of a live cluster, or copies of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kraftbridge.exceptions import LogUnavailableError, MetadataError
from kraftbridge.metadata.entities import read_key
from kraftbridge.metadata.log.files import LOG_FOLDER, FilesOwner, LocalLogFiles, open_log_files
from kraftbridge.metadata.log.scanning import LogEnd, log_end
from kraftbridge.metadata.zookeeper.reader import has_keyed_hashes, split_connect
from kraftbridge.models.report import (
    BrokerAccess,
    CompareServed,
    Profile,
    VerificationRequest,
    VoterState,
    ZooKeeperAccess,
)
from kraftbridge.outside.json_text import parsed_json
from kraftbridge.verification.quorum import QuorumUnavailableError, QuorumView, controller_security, describe_quorum
from kraftbridge.verification.sources.brokers import brokers_behind
from kraftbridge.verification.sources.rows import LogVoter

_QUORUM_STATE: Final = "quorum-state"
_TOLERATED_LAG_RECORDS: Final = 100
"""Between copies of idle voters' logs: NoOpRecords of 50 s. Longer logs may be apart by a tenth."""
_TOLERATED_LAG_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Dump:
    """A dump of a ZooKeeper tree."""

    path: Path
    chroot: str
    key_path: str | None = None
    """File with the key of its hashes; None for a dump without hashes, or with those of a former version."""

    @classmethod
    def of(cls, path: Path, chroot: str, key_path: str | None) -> Dump:
        """Return a dump, with the key that its hashes have.

        Raises
        ------
        MetadataError
            The file cannot be read, or the dump has keyed hashes, and there is no key.
        """
        if not has_keyed_hashes(path):
            return cls(path, chroot)
        if key_path is None:
            raise BadInputError(f"the dump {path} is redacted with a key: give the file of the key (--key-file)")
        read_key(key_path)
        return cls(path, chroot, key_path)


@dataclass(slots=True)
class Inputs:
    """Where everything is."""

    profile: Profile
    zookeeper: ZooKeeperAccess | Dump | None
    """A live ensemble or a dump; None where the profile does not need it."""
    voters: list[LogVoter]
    """Logs; the one with `mirrored` is compared with ZooKeeper and with brokers."""
    states: list[VoterState]
    """What is known of each voter, in the same order."""
    live: bool
    """Whether in-flight entities can be read again."""
    replicas_offset: int | None = None
    """Offset, inclusive, at which the voters' images are compared.
    From the quorum: the last committed one, which every voter's log must reach.
    Without a quorum to ask: the last one that every log holds.
    """
    high_watermark: int | None = None
    leader_id: int | None = None
    leader_epoch: int | None = None
    brokers: Sequence[BrokerAccess] = ()
    """Brokers that are asked what they serve."""
    brokers_unknown: str | None = None
    """Why no broker is asked although the request wants it where it is possible."""
    token_path: str | None = None
    ca_path: str | None = None
    client_config_path: str | None = None
    encoder_secret_path: str | None = None
    problems: list[str] = field(default_factory=list)
    """What is wrong with the places, known before they are read; rules `Consistent` out."""

    @property
    def dump_key_path(self) -> str | None:
        """File with the key of the hashes in the dump."""
        return self.zookeeper.key_path if isinstance(self.zookeeper, Dump) else None


class BadInputError(MetadataError):
    """The request or the arguments are not sufficient for a run."""


def live_inputs(request: VerificationRequest) -> Inputs:
    """Return the inputs that a request names, with the quorum's view of its logs.

    Raises
    ------
    MetadataError
        A place that the profile needs is missing from the request, or no voter's log can be reached.
    """
    needs_zookeeper = request.profile is not Profile.REPLICAS
    needs_logs = request.profile not in {Profile.ZOOKEEPER, Profile.UPGRADE}
    if needs_zookeeper and request.zookeeper is None:
        raise BadInputError(f"profile {request.profile} needs `zookeeper`")
    if needs_logs and not request.voters:
        raise BadInputError(f"profile {request.profile} needs `voters`")
    inputs = Inputs(
        profile=request.profile,
        zookeeper=_tree(request) if needs_zookeeper else None,
        voters=[],
        states=[],
        live=True,
        token_path=request.token_path,
        ca_path=request.ca_path,
        client_config_path=request.client_config_path,
        encoder_secret_path=request.password_encoder_secret_path,
    )
    _add_brokers(inputs, request)
    if not needs_logs:
        return inputs
    inputs.voters = [LogVoter(id=voter.id, name=str(voter.id), url=voter.log_url) for voter in request.voters]
    inputs.states = [VoterState(id=voter.id, name=str(voter.id)) for voter in request.voters]
    if any(voter.host for voter in request.voters):
        _apply_view(inputs, describe_quorum(request.voters, controller_security(request)))
    else:
        _apply_logs(inputs)
    return inputs


def _tree(request: VerificationRequest) -> ZooKeeperAccess | Dump | None:
    """Return where the tree is: ZooKeeper, or for profile `copy` the file that the watch has kept."""
    if request.profile is not Profile.COPY or request.zookeeper is None:
        return request.zookeeper
    if request.tree_path is None:
        raise BadInputError("profile copy needs `treePath`")
    path = Path(request.tree_path)
    if not path.is_file():
        raise BadInputError(
            f"there is no reading of the tree from before the sync ({path}): nothing was watching when Kafka copied it"
        )
    return Dump.of(path, split_connect(request.zookeeper.connect)[1], request.tree_key_path)


def _add_brokers(inputs: Inputs, request: VerificationRequest) -> None:
    if request.compare_served is CompareServed.NEVER:
        return
    try:
        inputs.brokers = _brokers(request)
    except MetadataError as error:
        if request.compare_served is CompareServed.ALWAYS or request.profile is Profile.UPGRADE:
            raise
        inputs.brokers_unknown = str(error)


def _brokers(request: VerificationRequest) -> Sequence[BrokerAccess]:
    if request.brokers:
        return request.brokers
    if not request.bootstrap_servers:
        raise BadInputError("what brokers serve is to be compared: `brokers` or `bootstrapServers` is needed")
    return brokers_behind(request.bootstrap_servers, request.client_config_path)


def _apply_view(inputs: Inputs, view: QuorumView) -> None:
    named = {voter.id for voter in inputs.voters}
    if named != view.end_offsets.keys():
        raise QuorumUnavailableError(
            f"the quorum's voters are {sorted(view.end_offsets)}, the request names {sorted(named)}: all are needed"
        )
    if view.high_watermark < 1:  # a new leader knows it once a majority has fetched in its epoch
        raise QuorumUnavailableError(
            f"leader {view.leader_id} says that the high watermark is {view.high_watermark}: "
            "nothing is known to be committed"
        )
    silent = sorted(voter for voter, end in view.end_offsets.items() if end < 0)
    if silent:  # `LeaderState`: no fetch since the election
        raise QuorumUnavailableError(
            f"voter(s) {silent} have not fetched from leader {view.leader_id} since it was elected: "
            "is each up, and can it write its log?"
        )
    inputs.high_watermark = view.high_watermark
    inputs.leader_id = view.leader_id
    inputs.leader_epoch = view.leader_epoch
    inputs.states = [
        state.model_copy(update={"reported_end_offset": view.end_offsets[state.id]}) for state in inputs.states
    ]
    inputs.replicas_offset = view.high_watermark - 1
    inputs.voters = [voter.model_copy(update={"mirrored": voter.id == view.leader_id}) for voter in inputs.voters]


def _apply_logs(inputs: Inputs) -> None:
    """Derive leader (the longest log) and compared offset (what all logs hold is committed) from the logs."""
    log_ends: dict[int, LogEnd] = {}
    for index, voter in enumerate(inputs.voters):
        try:
            log_ends[index] = log_end(open_log_files(voter.url, inputs.token_path, inputs.ca_path))
        except MetadataError as error:
            raise type(error)(f"voter {voter.name}: {error}") from error
        if log_ends[index].offset < 1:
            raise BadInputError(f"voter {voter.name}: its log holds no record")
    ends = [end.offset for end in log_ends.values()]
    longest = ends.index(max(ends))
    # A recorded leader is one if no other log is longer.
    leader = max(range(len(ends)), key=lambda index: (ends[index], inputs.voters[index].mirrored, -index))
    inputs.voters = [
        voter.model_copy(update={"mirrored": index == leader}) for index, voter in enumerate(inputs.voters)
    ]
    inputs.states = [
        state.model_copy(update={"end_offset": end}) for state, end in zip(inputs.states, ends, strict=True)
    ]
    if inputs.leader_id is None:
        inputs.leader_id = inputs.voters[leader].id
    inputs.replicas_offset = min(ends) - 1
    inputs.problems += (
        f"voter {inputs.voters[index].name} is far behind: its log ends at offset {end.offset}, that of voter "
        f"{inputs.voters[longest].name} at {ends[longest]}; "
        "copy the logs within a minute of each other, and see that the voter follows"
        for index, end in log_ends.items()
        if _is_far_behind(end, log_ends[longest])
    )


def _is_far_behind(end: LogEnd, longest: LogEnd) -> bool:
    """Return whether a log ends earlier than the time between two copies explains."""
    lag_records = longest.offset - end.offset
    if lag_records > max(_TOLERATED_LAG_RECORDS, longest.offset // 10):
        return True
    if lag_records == 0 or end.append_timestamp_ms < 0:
        return False
    return longest.append_timestamp_ms - end.append_timestamp_ms > _TOLERATED_LAG_MS


def offline_inputs(
    profile: Profile, dump: Dump | None, voters: Sequence[tuple[str, Path]], encoder_secret_path: str | None
) -> Inputs:
    """Return what copies of a cluster's data hold.

    Parameters
    ----------
    voters
        Name and folder of each log; the folder holds `__cluster_metadata-0`.
    """
    if profile is Profile.UPGRADE:
        raise BadInputError("profile upgrade asks the brokers of a running cluster: copies cannot stand in for them")
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
    identities = _identities(names, [folder for _, folder in voters])
    leaders = {_recorded_leader(folder) for _, folder in voters} - {None}
    for (name, folder), identity in zip(voters, identities, strict=True):
        inputs.voters.append(
            LogVoter(id=identity, name=name, url=folder.resolve().as_uri(), mirrored=leaders == {identity})
        )
        inputs.states.append(VoterState(id=identity, name=name))
    if len(leaders) == 1:
        (inputs.leader_id,) = leaders
    _apply_logs(inputs)
    return inputs


def _identities(names: Sequence[str], folders: Sequence[Path]) -> list[int]:
    """Return the node id of each copy.

    Raises
    ------
    BadInputError
        Two copies are of one voter, or of different clusters.
    """
    owners: dict[str, FilesOwner] = {}
    for name, folder in zip(names, folders, strict=True):
        if not folder.is_dir():
            raise LogUnavailableError(f"voter {name}: {folder} is not a folder")
        owner = LocalLogFiles(folder).owner()
        if owner is None:
            continue  # a problem of the run, which reads on
        for other, other_owner in owners.items():
            if owner.node_id == other_owner.node_id:
                raise BadInputError(
                    f"voter {name}: {folder} holds the files of node {owner.node_id}, as does voter {other}"
                )
            if owner.cluster_id != other_owner.cluster_id:
                raise BadInputError(
                    f"voter {name}: {folder} is of cluster {owner.cluster_id}, "
                    f"voter {other} of cluster {other_owner.cluster_id}"
                )
        owners[name] = owner
    free = iter(sorted(set(range(len(names))) - {owner.node_id for owner in owners.values()}))
    return [owners[name].node_id if name in owners else next(free) for name in names]


def _recorded_leader(folder: Path) -> int | None:
    for candidate in (folder / LOG_FOLDER / _QUORUM_STATE, folder / _QUORUM_STATE):
        try:
            leader = parsed_json(candidate.read_text(encoding="utf-8")).get("leaderId")
        except (OSError, ValueError, AttributeError):
            continue
        if isinstance(leader, int) and leader >= 0:
            return leader
    return None
