"""Where a copy ends in a log, and what a tree says of the claim."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.metadata.record_writer import batch, record

from kraftbridge.metadata.copying import Claim, copy_span, is_krafts
from kraftbridge.metadata.log.files import LocalLogFiles
from kraftbridge.metadata.zookeeper.znodes import Znode

DATA = Path(__file__).resolve().parents[2] / "data" / "metadata" / "dualwrite"
CLAIMED = b'{"version":2,"brokerid":3000,"kraftControllerEpoch":3}'


def test_the_end_of_a_real_copy_is_found_on_every_voter() -> None:
    spans = [copy_span(LocalLogFiles(DATA / voter)) for voter in ("c3000", "c3001", "c3002")]
    assert [span.end for span in spans if span is not None] == [599, 599, 599]


def test_a_log_without_a_copy_has_no_end(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.log").write_bytes(batch([record("NoOpRecord")], 0))
    assert copy_span(LocalLogFiles(tmp_path)) is None


@pytest.mark.parametrize(
    ("path", "data", "answer"),
    [
        ("/controller", CLAIMED, True),
        ("/controller", b'{"version":2,"brokerid":1,"kraftControllerEpoch":-1}', False),
        ("/controller", b'{"version":1,"brokerid":1}', False),
        ("/controller", b'{"version":2,"brokerid":1,"kraftControllerEpoch":true}', False),
        ("/controller", b'{"version":2,"brokerid":1,"kraftControllerEpoch":1.5}', False),
        ("/controller", b'{"version":2,"brokerid":1,"kraftControllerEpoch":2147483648}', False),
        ("/controller", b"{", False),
        ("/controller", None, False),
        ("/controller_epoch", CLAIMED, False),
    ],
)
def test_who_holds_controller(path: str, data: bytes | None, answer: bool) -> None:
    assert is_krafts(path, data) is answer


def test_only_what_changed_after_the_claim_is_listed() -> None:
    claim = Claim()
    znodes = [
        Znode("/config/users/b", b"{}", modified_zxid=101),
        Znode("/controller", CLAIMED, modified_zxid=100),
        Znode("/controller_epoch", b"8", modified_zxid=102),
        Znode("/migration", b"{}", modified_zxid=103),
        Znode("/zookeeper/config", b"", modified_zxid=104),
        Znode("/config/users/a", b"{}", modified_zxid=99),
        Znode("/zookeeper-x", b"", modified_zxid=105),
    ]
    assert list(claim.watch(znodes)) == znodes
    assert (claim.zxid, claim.changed()) == (100, ["/config/users/b", "/zookeeper-x"])
    assert not Claim().changed()
