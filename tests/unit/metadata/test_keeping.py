"""A kept copy of a metadata log: what a voter starts from is what the log held up to its last complete batch."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.metadata.test_copying import DATA

from kraftbridge.exceptions import LogUnavailableError
from kraftbridge.metadata.log.archive import KeptCopyError, archive_log, quorum_state, unpack_log
from kraftbridge.metadata.log.files import LOG_FOLDER, LocalLogFiles
from kraftbridge.metadata.log.replay import LogReplay
from kraftbridge.metadata.log.scanning import FileScan, log_end
from kraftbridge.pods import restore

SOURCE = DATA / "c3000"
VOTERS = (3000, 3001, 3002)


def archived(folder: Path) -> bytes:
    target = io.BytesIO()
    archive_log(LocalLogFiles(folder), target)
    return target.getvalue()


def image_of(folder: Path) -> object:
    files = LocalLogFiles(folder)
    return LogReplay(files).advance(log_end(files).offset - 1)


def test_a_copy_holds_what_the_log_held(tmp_path: Path) -> None:
    target = io.BytesIO()
    made = archive_log(LocalLogFiles(SOURCE), target)
    assert made.end_offset == log_end(LocalLogFiles(SOURCE)).offset
    folder = tmp_path / LOG_FOLDER
    folder.mkdir()
    unpack_log(io.BytesIO(target.getvalue()), folder, 1 << 30)
    assert image_of(tmp_path) == image_of(SOURCE)
    # A verification reads it only if it says whose log it is.
    assert LocalLogFiles(tmp_path).owner() == LocalLogFiles(SOURCE).owner()


@given(st.integers(1, 5_000))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_of_a_torn_log_all_complete_batches_are_kept(tmp_path: Path, cut_bytes: int) -> None:
    torn, unpacked = tmp_path / "torn", tmp_path / "unpacked"
    for folder in (torn, unpacked):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SOURCE, torn)
    files = LocalLogFiles(torn)
    newest = max(torn.rglob("*.log"))
    newest.write_bytes(newest.read_bytes()[:-cut_bytes])
    try:
        expected = log_end(files).offset
    except LogUnavailableError:
        return
    target = io.BytesIO()
    made = archive_log(files, target)
    assert made.end_offset == expected
    unpacked.mkdir()
    unpack_log(io.BytesIO(target.getvalue()), unpacked, 1 << 30)
    scans = [FileScan(LocalLogFiles(unpacked), path.name, path.stat().st_size) for path in unpacked.glob("*.log")]
    assert [batch for scan in scans for batch in scan][-1].last_offset + 1 == expected
    assert not any(scan.torn_bytes for scan in scans)


def test_an_empty_log_is_no_copy(tmp_path: Path) -> None:
    with pytest.raises(LogUnavailableError):
        archived(tmp_path)


@pytest.mark.parametrize("name", ["../escaped", "/etc/passwd", "quorum-state", "x.log"])
def test_an_archive_writes_nothing_but_files_of_a_log(tmp_path: Path, name: str) -> None:
    data = io.BytesIO()
    with tarfile.open(mode="w:gz", fileobj=data) as archive:
        member = tarfile.TarInfo(name)
        member.size = 3
        archive.addfile(member, io.BytesIO(b"bad"))
    with pytest.raises(KeptCopyError, match="no file of a metadata log"):
        unpack_log(io.BytesIO(data.getvalue()), tmp_path, 1 << 30)
    assert list(tmp_path.iterdir()) == []


def test_an_archive_over_the_bound_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeptCopyError, match="larger than 1000 bytes"):
        unpack_log(io.BytesIO(archived(SOURCE)), tmp_path, 1_000)


def test_a_broken_archive_is_an_error(tmp_path: Path) -> None:
    whole = archived(SOURCE)
    with pytest.raises(KeptCopyError):
        unpack_log(io.BytesIO(whole[: len(whole) // 2]), tmp_path, 1 << 30)


def test_a_voter_begins_without_leader_and_vote() -> None:
    assert json.loads(quorum_state(VOTERS, 1007)) == {
        "clusterId": "", "leaderId": -1, "leaderEpoch": 1007, "votedId": -1, "appliedOffset": 0,
        "currentVoters": [{"voterId": voter} for voter in VOTERS], "data_version": 0,
    }  # fmt: skip


# ------------------------------------------------------------------------------------------- volumes


def in_parts(folder: Path, data: bytes, size: int) -> str:
    folder.mkdir()
    for number, start in enumerate(range(0, len(data), size)):
        (folder / f"part-{number:04}").write_bytes(data[start : start + size])
    return hashlib.sha256(data).hexdigest()


def restored(tmp_path: Path, digest: str, copy_id: str = "offset-5-epoch-2") -> int:
    return restore.main(
        ["volume", "--copy", str(tmp_path / "copy"), "--sha256", digest, "--directory", str(tmp_path / "kafka"), "--id", copy_id,
         "--epoch", "1007", "--voters", "3000,3001,3002", "--node-id", "3001", "--cluster-id=-Xd0"]
    )  # fmt: skip


@pytest.mark.parametrize("size", [1_000, 700_000])
def test_a_volume_gets_the_copy_once_and_keeps_what_it_held(tmp_path: Path, size: int) -> None:
    digest = in_parts(tmp_path / "copy", archived(SOURCE), size)
    volume = tmp_path / "kafka"
    (volume / LOG_FOLDER).mkdir(parents=True)
    (volume / LOG_FOLDER / "old").write_text("of the voter that is left")
    assert restored(tmp_path, digest) == 0
    assert image_of(volume) == image_of(SOURCE)
    assert "node.id=3001\ncluster.id=-Xd0\n" in (volume / "meta.properties").read_text()
    assert json.loads((volume / LOG_FOLDER / "quorum-state").read_text())["leaderEpoch"] == 1007
    before = tmp_path / "kafka.before-offset-5-epoch-2"
    assert (before / LOG_FOLDER / "old").read_text() == "of the voter that is left"
    # It has written since: its next start leaves that alone.
    (volume / LOG_FOLDER / "new").write_text("written since")
    assert restored(tmp_path, digest) == 0
    assert (volume / LOG_FOLDER / "new").exists()
    assert restored(tmp_path, digest, "offset-9-epoch-2") == 0
    assert not (volume / LOG_FOLDER / "new").exists()


def test_a_blank_volume_gets_the_copy_also_after_an_interruption(tmp_path: Path) -> None:
    digest = in_parts(tmp_path / "copy", archived(SOURCE), 5_000)
    half = tmp_path / "kafka.restoring" / LOG_FOLDER
    half.mkdir(parents=True)
    (half / "half").write_text("of an interrupted start")
    assert restored(tmp_path, digest) == 0
    assert not (tmp_path / "kafka" / LOG_FOLDER / "half").exists()


def test_another_digest_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    in_parts(tmp_path / "copy", archived(SOURCE), 5_000)
    assert restored(tmp_path, "0" * 64) == 1
    assert "SHA-256" in capsys.readouterr().err
    assert not (tmp_path / "kafka").exists()
