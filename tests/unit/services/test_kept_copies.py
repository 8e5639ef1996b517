"""A copy of the metadata log is kept in Secrets, whole or not at all, and never over the last whole one."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest
from tests.support.fakes import Clock, FakeKubernetes, FakeLog
from tests.support.observations import CONTROLLER_IDS, CONTROLLERS, IDENTITY, NOW
from tests.unit.metadata.test_copying import DATA

from kraftbridge.builders import names
from kraftbridge.exceptions import ActionError, LogUnavailableError, ObservationError
from kraftbridge.metadata.log.files import LocalLogFiles
from kraftbridge.metadata.log.scanning import log_end
from kraftbridge.models.decision import KeepCopy
from kraftbridge.models.status import ControllersStatus
from kraftbridge.services import kept_copies
from kraftbridge.services.clients import ClusterClients

KNOWN = ControllersStatus(name=CONTROLLERS, node_ids=CONTROLLER_IDS)
ACTION = KeepCopy("run-1", "demo-kept-a")


class Logs:
    """The log servers: each voter's log in a directory, or no answer."""

    def __init__(self, folders: dict[int, Path]) -> None:
        self.folders = folders

    def __call__(self, host: str, token: str, authority: str) -> Any:
        assert (token, authority) == ("the token", "the authority")
        voter = int(host.partition(".")[0].rpartition("-")[2])
        if voter not in self.folders:
            raise LogUnavailableError(f"{host}: connection refused")
        return FakeLog(self.folders[voter])


@pytest.fixture
def kubernetes() -> FakeKubernetes:
    made = FakeKubernetes(Clock())
    data = {"token": base64.b64encode(b"the token").decode(), "ca.crt": base64.b64encode(b"the authority").decode()}
    name = names.log_reader_secret(CONTROLLERS)
    metadata = {"name": name, "namespace": IDENTITY.namespace}
    made.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
    return made


def kept(
    kubernetes: FakeKubernetes, folders: dict[int, Path], monkeypatch: pytest.MonkeyPatch, part_bytes: int = 1_000
) -> Any:
    monkeypatch.setattr(kept_copies, "PART_BYTES", part_bytes)
    nobody: Any = None
    clients = ClusterClients(nobody, nobody, nobody, nobody, open_log=Logs(folders))
    kept_copies.keep(kubernetes, IDENTITY, clients, KNOWN, ACTION, NOW)
    return kept_copies.read(kubernetes, IDENTITY.namespace, ACTION.secret)


def everybodys() -> dict[int, Path]:
    return {voter: DATA / f"c{voter}" for voter in CONTROLLER_IDS}


def test_the_log_of_the_voter_that_has_most_is_kept(
    kubernetes: FakeKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = everybodys()
    ends = {voter: log_end(LocalLogFiles(folder)).offset for voter, folder in folders.items()}
    copy = kept(kubernetes, folders, monkeypatch)
    assert int(copy.end_offset) == max(ends.values())
    assert copy.run_id == "run-1"
    parts = [
        kubernetes.get("v1", "Secret", IDENTITY.namespace, names.part_of(ACTION.secret, i)) for i in range(copy.parts)
    ]
    data = b"".join(base64.b64decode(p["data"][names.KEPT_COPY_KEY]) for p in parts if p is not None)
    assert hashlib.sha256(data).hexdigest() == copy.digest
    assert copy.parts > 1
    assert parts[0] is not None
    assert parts[0]["metadata"]["ownerReferences"][0]["uid"] == IDENTITY.uid


def test_a_voter_that_does_not_answer_is_passed_over(
    kubernetes: FakeKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = kept(kubernetes, {3001: DATA / "c3001"}, monkeypatch)
    assert copy.node_id == 3001


def test_without_any_voter_nothing_is_written(
    kubernetes: FakeKubernetes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(ActionError, match="no voter's metadata log can be read"):
        kept(kubernetes, {3001: tmp_path}, monkeypatch)
    assert kept_copies.read(kubernetes, IDENTITY.namespace, ACTION.secret) is None


def test_a_log_over_the_bound_is_not_kept(kubernetes: FakeKubernetes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_copies, "MOST_BYTES", 100)
    with pytest.raises(ActionError, match="which is the most that is kept"):
        kept(kubernetes, everybodys(), monkeypatch)


@pytest.mark.parametrize("number", [0, 1])
def test_a_copy_of_which_a_part_is_gone_or_changed_is_none(
    kubernetes: FakeKubernetes, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    assert kept(kubernetes, everybodys(), monkeypatch) is not None
    name = names.part_of(ACTION.secret, number)
    data = {names.KEPT_COPY_KEY: base64.b64encode(b"another").decode()}
    kubernetes.merge_patch("v1", "Secret", IDENTITY.namespace, name, {"data": data})
    assert kept_copies.read(kubernetes, IDENTITY.namespace, ACTION.secret) is None
    kubernetes.delete("v1", "Secret", IDENTITY.namespace, name)
    assert kept_copies.read(kubernetes, IDENTITY.namespace, ACTION.secret) is None


def test_a_secret_that_is_no_copy_is_an_error(kubernetes: FakeKubernetes) -> None:
    metadata = {"name": ACTION.secret, "namespace": IDENTITY.namespace}
    kubernetes.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    with pytest.raises(ObservationError, match="kept-copy"):
        kept_copies.read(kubernetes, IDENTITY.namespace, ACTION.secret)
