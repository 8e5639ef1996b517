"""The scratch controller's configuration: what the real controllers have, but for what the documentation lists."""

from __future__ import annotations

from pathlib import Path

import javaproperties
import pytest

from kraftbridge.models.broker_settings import LOADED_BY_CONTROLLERS
from kraftbridge.models.rehearsal import NOT_REHEARSED
from kraftbridge.rehearsal.settings import _REPLACED_FOLDERS, REPLACED, controller_properties
from kraftbridge.rehearsal.tree import BrokerRegistration, Listener, SecurityProtocol

PAGE = Path(__file__).resolve().parents[3] / "docs" / "rehearsal.md"
BROKERS = [BrokerRegistration(0, None, (Listener("INTERNAL", "127.0.0.1", 1, SecurityProtocol.SASL_SSL),))]
KEPT = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "password.encoder.secret": "a: secret=\\",
    "delegation.token.secret.key": "key",
    "zookeeper.metadata.migration.min.batch.size": "1",
    "unclean.leader.election.enable": "true",
}


def table() -> str:
    text = PAGE.read_text().partition("## What is replaced")[2].partition("\n## ")[0]
    return "\n".join(line for line in text.splitlines() if line.startswith("|"))


@pytest.mark.parametrize("name", [*REPLACED, *(f"{folder}*" for folder in _REPLACED_FOLDERS)])
def test_the_documentation_lists_every_replaced_setting(name: str) -> None:
    assert f"`{name}`" in table()


@pytest.mark.parametrize("name", [*REPLACED, *(f"{folder}x" for folder in _REPLACED_FOLDERS)])
def test_no_address_and_no_credential_of_the_real_controllers_is_left(name: str) -> None:
    text, replaced = controller_properties({name: "real.example:9093"}, 20_001, 20_002, Path("/scratch"), BROKERS)
    assert replaced.keys() == {name}
    assert "real.example" not in text


def test_everything_else_is_as_the_real_controllers_have_it() -> None:
    text, replaced = controller_properties(KEPT, 20_001, 20_002, Path("/scratch"), BROKERS)
    given = javaproperties.loads(text)
    assert {name: given[name] for name in KEPT} == KEPT
    assert replaced == {}
    assert given["super.users"] == "User:ANONYMOUS"
    assert given["inter.broker.listener.name"] == "INTERNAL"


def test_every_class_of_the_controllers_is_loaded_unless_preflight_knows_that_it_is_not() -> None:
    settings = dict.fromkeys(LOADED_BY_CONTROLLERS, "com.example.Plugin")
    _, replaced = controller_properties(settings, 20_001, 20_002, Path("/scratch"), BROKERS)
    assert replaced.keys() == NOT_REHEARSED
