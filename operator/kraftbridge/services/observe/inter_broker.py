"""Tries the controllers' credentials at every broker's inter-broker listener, before a controller needs them."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from kraftbridge.exceptions import ObservationError
from kraftbridge.models.observation import BrokerZnode, Endpoint
from kraftbridge.models.survey import BrokerSetting, LoginTrial
from kraftbridge.phases.preflight.kafka import inter_broker_listener, inter_broker_login, inter_broker_tls
from kraftbridge.services.answers import Outcomes
from kraftbridge.services.listener import CannotBeTriedError, key_and_chain, of_listener, trusted
from kraftbridge.storage.ports import BrokerPort

ACCEPTED_FOR_SECONDS: Final = 300.0
"""How long a login that was accepted is not tried again, while credentials and address stay the same."""
REFUSED_FOR_SECONDS: Final = 15.0
"""The same for one that was not, so that a corrected Secret is seen soon."""
TRIAL_SECONDS: Final = 5.0
"""Time budget of one survey."""
_AT_A_TIME: Final = 8
_AUTHORIZER: Final = "authorizer.class.name"
_TLS_SETTINGS: Final = {"ssl.endpoint.identification.algorithm", "ssl.key.password"}


def client_of_brokers(
    values: Mapping[str, BrokerSetting], settings: Mapping[str, str], secret: Mapping[str, str]
) -> dict[str, str] | None:
    """Return how a controller connects to a broker's inter-broker listener, as client properties with inline PEM.

    None where there is nothing to try: a plain listener of brokers without an authorizer,
    or a setting that another finding asks for.

    Parameters
    ----------
    values
        Running settings of the broker.
    settings
        Settings of the controllers: ``spec.controllers.config`` and ``listener.properties``.
    secret
        Data of the Secret of the controllers' listener, whose files the settings name.

    Raises
    ------
    CannotBeTriedError
        A file is not in the Secret, or is no PEM.
        Or a login is there without what its TLS needs: who accepts that finding, because Java itself
        trusts the brokers, has not tried the login.

    Notes
    -----
    The login always has the prefix of listener and mechanism (``JaasContext.loadServerContext``).
    """
    listener, protocol = inter_broker_listener(values)
    login = inter_broker_login(values)
    tls = inter_broker_tls(values)
    if protocol == "PLAINTEXT" and _AUTHORIZER not in values:
        return None
    if login is not None and login.setting not in settings:
        return None
    lacking = () if tls is None else tls.lacking(settings)
    if lacking:
        if login is None:
            return None
        raise CannotBeTriedError(f"the controllers' configuration lacks {' and '.join(lacking)} for its TLS")
    own = of_listener(settings, listener)
    client = {"security.protocol": protocol}
    if login is not None:
        client |= {"sasl.mechanism": login.mechanism, "sasl.jaas.config": settings[login.setting]}
    if tls is None:
        return client
    client |= {name: value for name, value in own.items() if name in _TLS_SETTINGS}
    if authorities := trusted(own, secret):
        client["ssl.truststore.certificates"] = authorities
    key, chain = key_and_chain(own, secret)
    if key:
        client |= {"ssl.keystore.key": key, "ssl.keystore.certificate.chain": chain}
    return client


@dataclass(frozen=True, slots=True)
class Controllers:
    """What a controller would connect with."""

    settings: Mapping[str, str]
    """``spec.controllers.config`` and ``listener.properties``."""
    secret: Mapping[str, str]
    """Data of the Secret of their listener."""
    resolvable: Callable[[str], str]
    """Returns ``host:port``, as a pod of the controllers' namespace resolves it, in a form for the operator too."""


class LoginTrials:
    """Tries logins and remembers the outcomes for a while."""

    def __init__(self) -> None:
        self._outcomes = Outcomes(ACCEPTED_FOR_SECONDS, REFUSED_FOR_SECONDS)

    def failed(
        self,
        port: BrokerPort,
        brokers: Mapping[int, Mapping[str, BrokerSetting]],
        znodes: tuple[BrokerZnode, ...],
        controllers: Controllers,
    ) -> dict[int, LoginTrial]:
        """Connect to each broker as a controller would; return those that do not let it in, or cannot be tried."""
        until = time.monotonic() + TRIAL_SECONDS
        endpoints = {z.id: {e.listener: e for e in z.endpoints} for z in znodes}
        with ThreadPoolExecutor(_AT_A_TIME, "inter-broker") as pool:
            under_way = {
                broker: pool.submit(self._failure, port, values, endpoints.get(broker, {}), controllers, until)
                for broker, values in brokers.items()
            }
            trials = {broker: trial.result() for broker, trial in under_way.items()}
        return {broker: trial for broker, trial in trials.items() if trial is not None}

    def _failure(
        self,
        port: BrokerPort,
        values: Mapping[str, BrokerSetting],
        endpoints: Mapping[str, Endpoint],
        controllers: Controllers,
        until: float,
    ) -> LoginTrial | None:
        listener, protocol = inter_broker_listener(values)
        endpoint = endpoints.get(listener)
        try:
            client = client_of_brokers(values, controllers.settings, controllers.secret)
            if client is None:
                return None
            address = _address(endpoint, listener)
            host = address.rpartition(":")[0]
            refusal = self._refusal(port, address, host, client, controllers, until)
        except (CannotBeTriedError, ObservationError) as error:
            # Without TLS and login only the rights are asked for,
            # and a listener that the operator cannot reach says nothing about them.
            if protocol == "PLAINTEXT":
                return None
            return LoginTrial(listener, _shown(endpoint), str(error), tried=False)
        return None if refusal is None else LoginTrial(listener, _shown(endpoint), refusal, tried=True)

    def _refusal(
        self,
        port: BrokerPort,
        address: str,
        server_name: str,
        client: Mapping[str, str],
        controllers: Controllers,
        until: float,
    ) -> str | None:
        digest = hashlib.sha256(json.dumps([address, client], sort_keys=True).encode()).hexdigest()
        now = time.monotonic()
        outcome = self._outcomes.recall(digest)
        if outcome is not None:
            return outcome.value
        if now > until:
            raise CannotBeTriedError("other brokers did not answer in time")
        refusal = port.refusal(controllers.resolvable(address), server_name, client)
        self._outcomes.keep(digest, refusal, now)
        return refusal


def _address(endpoint: Endpoint | None, listener: str) -> str:
    if endpoint is None:
        raise CannotBeTriedError(f"the broker advertises no listener {listener} in ZooKeeper")
    return _shown(endpoint)


def _shown(endpoint: Endpoint | None) -> str:
    return "unknown address" if endpoint is None else f"{endpoint.host}:{endpoint.port}"
