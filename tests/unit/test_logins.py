"""The logins that the operator issues: what it writes into the Secrets, and what it takes for edited."""

from __future__ import annotations

import pytest

from kraftbridge.kafka.client import _jaas_option
from kraftbridge.listener import logins
from kraftbridge.listener.logins import Logins
from kraftbridge.outside.properties import parse_properties

AUTHORITY = {name: content.decode() for name, content in logins.new_passwords().items()}
OWN = logins.of_authority(AUTHORITY, "1a2b3c4d")
CONTROLLERS, BROKERS = "kraftbridge-controllers-1a2b3c4d", "kraftbridge-brokers-1a2b3c4d"
JAAS = "listener.name.controller.plain.sasl.jaas.config"


def texts(files: dict[str, bytes]) -> dict[str, str]:
    return {name: content.decode() for name, content in files.items()}


@pytest.fixture
def issued() -> Logins:
    assert OWN is not None
    return OWN


def test_the_controllers_let_in_both_users_and_log_in_as_one(issued: Logins) -> None:
    files = texts(issued.for_controllers())
    settings = parse_properties(files["listener.properties"])
    assert settings["sasl.mechanism.controller.protocol"] == "PLAIN"
    assert settings["listener.name.controller.sasl.enabled.mechanisms"] == "PLAIN"
    of_controllers, of_brokers = AUTHORITY["controllers.password"], AUTHORITY["brokers.password"]
    found = {
        o: _jaas_option(settings[JAAS], o) for o in ("username", "password", f"user_{CONTROLLERS}", f"user_{BROKERS}")
    }
    assert list(found.values()) == [CONTROLLERS, of_controllers, of_controllers, of_brokers]
    assert _jaas_option(files["sasl.jaas.config"], "password") == of_controllers


def test_a_client_learns_no_other_users_password(issued: Logins) -> None:
    of_brokers = issued.for_brokers()["sasl.jaas.config"].decode()
    assert (_jaas_option(of_brokers, "username"), _jaas_option(of_brokers, "password")) == (
        BROKERS,
        AUTHORITY["brokers.password"],
    )
    assert AUTHORITY["controllers.password"] not in of_brokers
    assert AUTHORITY["brokers.password"] not in issued.for_controllers()["sasl.jaas.config"].decode()


def test_every_authority_has_passwords_of_its_own_and_no_repr_shows_them(issued: Logins) -> None:
    assert len({*AUTHORITY.values(), *texts(logins.new_passwords()).values()}) == 4
    assert all(len(password) >= 32 for password in AUTHORITY.values())
    assert not [password for password in AUTHORITY.values() if password in repr(issued)]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (AUTHORITY, ""),
        ({}, "controllers.password is missing"),
        ({**AUTHORITY, "brokers.password": ""}, "brokers.password is missing"),
        ({**AUTHORITY, "brokers.password": 'a"b'}, "brokers.password is not a password that the operator made"),
        ({**AUTHORITY, "controllers.password": "short"}, "controllers.password is not a password that the operator made"),
        ({**AUTHORITY, "controllers.password": AUTHORITY["controllers.password"] + "\n"}, "controllers.password is not a"),
    ],
)  # fmt: skip
def test_passwords_that_the_operator_did_not_make_are_named_and_not_used(data: dict[str, str], words: str) -> None:
    found = logins.passwords_problem(data)
    assert words in found
    assert (found == "") is (words == "")
    assert (logins.of_authority(data, "1a2b3c4d") is None) is bool(words)


def test_an_edited_login_is_a_problem(issued: Logins) -> None:
    stranger = logins.of_authority(texts(logins.new_passwords()), "1a2b3c4d")
    assert stranger is not None
    good, other = texts(issued.for_controllers()), texts(stranger.for_controllers())
    assert logins.problem(good, issued.for_controllers()) == ""
    assert (
        logins.problem(
            good | {"listener.properties": f"# a comment\n{good['listener.properties']}"}, issued.for_controllers()
        )
        == ""
    )
    for name in good:
        assert logins.problem({k: v for k, v in good.items() if k != name}, issued.for_controllers()) == (
            f"{name} is missing"
        )
        found = logins.problem(good | {name: other[name]}, issued.for_controllers())
        assert found == f"{name} does not hold the login that the operator issued"
        for edited in ("edited", "a=\\uZZZZ", good[name] + "a=b\n"):
            assert name in logins.problem(good | {name: edited}, issued.for_controllers())
    assert "sasl.jaas.config" in logins.problem(texts(stranger.for_brokers()), issued.for_brokers())


def test_without_the_authority_the_controllers_secret_says_which_login_the_brokers_need(issued: Logins) -> None:
    controllers, other = texts(issued.for_controllers()), texts(logins.new_passwords())
    expected, stranger = logins.of_controllers(controllers, "1a2b3c4d"), logins.of_authority(other, "1a2b3c4d")
    assert expected == issued
    assert stranger is not None
    assert logins.problem(texts(issued.for_brokers()), expected.for_brokers()) == ""
    assert logins.problem(texts(stranger.for_brokers()), expected.for_brokers()) != ""
    assert logins.of_controllers({}, "1a2b3c4d") is None
    assert logins.of_controllers(controllers, "another") is None
