"""What a controller would connect to a broker with: what is not tried is said to be so."""

from __future__ import annotations

import pytest

from kraftbridge.exceptions import ObservationError
from kraftbridge.models.observation import BrokerZnode, Endpoint
from kraftbridge.models.survey import BrokerSetting, LoginTrial, SettingSource
from kraftbridge.services.observe.inter_broker import Controllers, LoginTrials, client_of_brokers

LOGIN = {"listener.name.internal.plain.sasl.jaas.config": 'a.PlainLoginModule required username="c" password="x";'}
TRUST = {"listener.name.internal.ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----"}
ZNODES = (BrokerZnode(1, ("kafka-1",), (Endpoint("INTERNAL", "kafka-1", 9094),)),)


def broker(protocol: str, **more: str) -> dict[str, BrokerSetting]:
    settings = {
        "inter.broker.listener.name": "INTERNAL",
        "listener.security.protocol.map": f"INTERNAL:{protocol}",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    } | {name.replace("__", "."): value for name, value in more.items()}
    return {n: BrokerSetting(n, v, SettingSource.STATIC, sensitive=False, known=True) for n, v in settings.items()}


class Port:
    """Brokers with one answer to every trial."""

    def __init__(self, answer: str | Exception | None = None) -> None:
        self.answer = answer
        self.asked: list[str] = []

    def refusal(self, address: str, server_name: str, client_properties: object) -> str | None:
        self.asked.append(address)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def failed(
    port: Port, protocol: str, settings: dict[str, str], znodes: tuple[BrokerZnode, ...] = ZNODES, **more: str
) -> LoginTrial | None:
    controllers = Controllers(settings, {}, lambda address: address)
    found = LoginTrials().failed(port, {1: broker(protocol, **more)}, znodes, controllers)  # type: ignore[arg-type]
    return found.get(1)


def test_a_login_whose_tls_is_not_known_is_not_tried_and_not_passed() -> None:
    """Who accepts InterBrokerTlsMissing, because Java itself trusts the brokers, has not tried the login."""
    port = Port()
    trial = failed(port, "SASL_SSL", LOGIN)
    assert trial is not None
    assert (trial.tried, port.asked) == (False, [])
    assert "lacks listener.name.internal.ssl.truststore.location" in trial.reason
    assert client_of_brokers(broker("SSL"), {}, {}) is None, "without a login InterBrokerTlsMissing says it all"
    assert failed(port, "SASL_SSL", LOGIN | TRUST) is None
    assert port.asked == ["kafka-1:9094"]


@pytest.mark.parametrize(
    ("answer", "tried", "words"),
    [
        ("Authentication failed", True, "Authentication failed"),
        (ObservationError("kafka-1:9094", "no answer in time"), False, "no answer in time"),
    ],
)
def test_no_answer_is_no_acceptance(answer: str | Exception, tried: bool, words: str) -> None:
    trial = failed(Port(answer), "SASL_PLAINTEXT", LOGIN)
    assert trial is not None
    assert trial.tried is tried
    assert words in trial.reason


def test_a_broker_that_advertises_no_such_listener_is_not_passed() -> None:
    trial = failed(Port(), "SASL_PLAINTEXT", LOGIN, znodes=())
    assert trial is not None
    assert not trial.tried
    assert "advertises no listener INTERNAL" in trial.reason


def test_a_plain_listener_is_asked_for_rights_only_where_somebody_authorizes() -> None:
    port = Port("no ClusterAction")
    assert failed(port, "PLAINTEXT", {}) is None
    assert port.asked == []
    trial = failed(port, "PLAINTEXT", {}, authorizer__class__name="kafka.security.authorizer.AclAuthorizer")
    assert trial is not None
    assert trial.tried
