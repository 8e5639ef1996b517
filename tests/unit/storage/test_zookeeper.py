"""What needs no server; the rest is in tests/integration/test_zookeeper_store.py."""

from __future__ import annotations

import importlib.util
import socket
import time

import pytest

from kraftbridge.exceptions import InvalidSpecError, ObservationError
from kraftbridge.metadata.zookeeper.session import ZooKeeperCredentials
from kraftbridge.models.observation import Unobserved
from kraftbridge.storage import zookeeper as module
from kraftbridge.storage.zookeeper import ZooKeeperStore, ZooKeeperTls


def test_secrets_stay_out_of_representations() -> None:
    assert "s3cret" not in repr(ZooKeeperCredentials("kafka", "s3cret"))
    assert "s3cret" not in repr(ZooKeeperTls("ca", "certificate", "s3cret"))


def test_sasl_without_its_package_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(InvalidSpecError, match="pure-sasl"):
        ZooKeeperStore("127.0.0.1:1", credentials=ZooKeeperCredentials("kafka", "s3cret", "sasl"))


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(module, "_FOUR_LETTER_WORD_SECONDS", 0.3)
    monkeypatch.setattr(module, "_CLOSE_SECONDS", 0.2)


@pytest.mark.usefixtures("_short")
def test_a_server_that_never_answers_costs_no_more_than_the_limits() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = ZooKeeperStore(f"127.0.0.1:{silent.getsockname()[1]}", "/kafka")
        try:
            started = time.monotonic()
            with pytest.raises(ObservationError, match=r"no session in 0.5 s"):
                store.observe()
            assert isinstance(store.broker_session_count(), Unobserved)
        finally:
            store.close()
        assert time.monotonic() - started < 3


@pytest.mark.usefixtures("_short")
def test_an_unknown_name_is_an_observation_error_that_says_so() -> None:
    store = ZooKeeperStore("zookeeper.invalid:2181")
    try:
        with pytest.raises(ObservationError, match=r"zookeeper.invalid:2181: .*(not known|resolution|No address)"):
            store.observe()
        assert store._client is None, "kazoo would look the name up for ever"
    finally:
        store.close()
