"""The operator's loop with ``listener.generate``: Secrets before controllers, renewals, edited and deleted Secrets, and no key and no password anywhere else."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

import pytest
from tests.support.fakes import FakeKubernetes
from tests.support.observations import spec_document
from tests.unit.services.conftest import Operator

from kraftbridge.builders import names
from kraftbridge.exceptions import ActionRefusedError, InvalidSpecError
from kraftbridge.kafka.client import Security
from kraftbridge.models.phase import Phase
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import MigrationStatus
from kraftbridge.outside.properties import parse_properties
from kraftbridge.services import clients, facts
from kraftbridge.services.observe import observer

ACCEPTED = [{"code": "BrokerCredentialsMissing"}]
PASSWORDS = ("controllers.password", "brokers.password")


@pytest.fixture(autouse=True)
def nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of these tests is not that of the caches."""
    monkeypatch.setattr(facts, "CREDENTIALS_SECONDS", 0.0)
    monkeypatch.setattr(observer, "SURVEY_EVERY_SECONDS", 0.0)


def listening(operator: Operator, target: str = "DualWrite", **listener: Any) -> None:
    """Let the operator issue the certificates."""
    operator.edit(
        target=target,
        controllers={"listener": {"securityProtocol": "SSL", "generate": True, **listener}},
        preflight={"accepted": ACCEPTED},
    )


def uid(operator: Operator) -> str:
    return str(operator.migration()["metadata"]["uid"])


def authority_of(operator: Operator) -> str:
    return names.issuing_authority_secret("demo", uid(operator))


def controllers_of(operator: Operator) -> str:
    status = operator.status().listener_certificates
    assert status is not None
    return status.controllers_secret


def data(kubernetes: FakeKubernetes, name: str) -> dict[str, bytes]:
    return {k: base64.b64decode(v) for k, v in kubernetes.objects["Secret", "kafka", name]["data"].items()}


def test_the_secrets_exist_before_the_controllers_and_are_mounted(operator: Operator) -> None:
    listening(operator)
    operator.walk(Phase.DUAL_WRITE)
    creations = [(kind, name) for verb, kind, name in operator.kubernetes.calls if verb in ("create", "apply")]
    controllers = operator.controllers()
    status = operator.status().listener_certificates
    assert status is not None
    secrets = (status.authority_secret, status.controllers_secret, status.brokers_secret)
    assert secrets == (
        f"demo-listener-ca-{uid(operator)[:8]}",
        f"{controllers}-listener",
        f"demo-listener-brokers-{uid(operator)[:8]}",
    )
    first = creations.index(("StatefulSet", controllers))
    assert all(creations.index(("Secret", name)) < first for name in secrets)
    pod = operator.kubernetes.objects["StatefulSet", "kafka", controllers]["spec"]["template"]["spec"]
    volumes = {v["name"]: v for v in pod["volumes"]}
    assert volumes["listener"]["projected"]["sources"] == [{"secret": {"name": status.controllers_secret}}]
    assert status.authority_secret not in json.dumps(pod), "no pod sees the key of the authority"
    settings = operator.kubernetes.objects[operator.configuration()]["data"]
    principals = f"User:CN=kraftbridge-controllers-{uid(operator)[:8]};User:CN=kraftbridge-brokers-{uid(operator)[:8]}"
    assert parse_properties(settings["controller.properties"])["super.users"] == principals


def test_what_was_read_before_the_secrets_were_issued_is_read_again(operator: Operator) -> None:
    """The copies of a dry start mount the brokers' certificate, and try it at the listener's."""
    listening(operator)
    operator.step()
    while not authority_exists(operator):
        operator.step()
    memory = operator.reconciler._memories[uid(operator)]
    assert memory.survey is None
    assert memory.dry_start is None


def authority_exists(operator: Operator) -> bool:
    return ("Secret", "kafka", authority_of(operator)) in operator.kubernetes.objects


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_no_private_key_and_no_password_leaves_the_secrets(
    operator: Operator, caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    caplog.set_level("DEBUG")
    listening(operator, "KRaft", securityProtocol=protocol)
    operator.walk(Phase.COMPLETED, 400)
    operator.rest(20)
    kubernetes, keys = operator.kubernetes, []
    for (kind, _, _), obj in kubernetes.objects.items():
        if kind == "Secret":
            files = {k: base64.b64decode(v) for k, v in (obj.get("data") or {}).items()}
            keys += [files[k].decode().splitlines()[1] for k in ("tls.key",) if k in files]
            keys += [files["password"].decode()] if "password" in files else []
            keys += [files[k].decode() for k in PASSWORDS if k in files]
    logins = 2 if protocol == "SASL_SSL" else 0
    assert len(keys) == 5 + logins, "authority, controllers, brokers with their password, log server; logins"
    rest = {k: v for k, v in kubernetes.objects.items() if k[0] != "Secret"}
    told = json.dumps([*map(str, rest.items()), *(e.message for e in kubernetes.events), caplog.text], default=str)
    keys += [base64.b64encode(k.encode()).decode() for k in keys]
    assert not [k for k in keys if k in told]
    manifest = kubernetes.objects["ConfigMap", "kafka", operator.status().final_manifest]["data"]
    assert controllers_of(operator) in manifest["certificates.txt"]
    assert "kind: Secret" not in manifest["controllers.yaml"]


def test_a_renewal_rolls_the_controllers_one_at_a_time_under_the_same_authority(operator: Operator) -> None:
    listening(operator, "KRaft", certificateDays=365)
    operator.walk(Phase.COMPLETED, 400)
    operator.rest(5)
    kubernetes = operator.kubernetes
    name, brokers = controllers_of(operator), f"demo-listener-brokers-{uid(operator)[:8]}"
    before, authority, of_brokers = (data(kubernetes, n) for n in (name, authority_of(operator), brokers))
    pods = {n: o["metadata"]["uid"] for (k, _, n), o in kubernetes.objects.items() if k == "Pod" and "kraft" in n}
    assert len(pods) == 3
    operator.step(250 * 86_400)
    restarted = []
    for _ in range(120):
        operator.step()
        now = {n: o["metadata"]["uid"] for (k, _, n), o in kubernetes.objects.items() if k == "Pod" and "kraft" in n}
        gone = [n for n in pods if now.get(n) != pods[n] and n not in restarted]
        assert len(gone) <= 1
        restarted += gone
    after = data(kubernetes, name)
    assert before["tls.crt"] != after["tls.crt"]
    assert before["ca.crt"] == after["ca.crt"] == authority["tls.crt"]
    assert data(kubernetes, authority_of(operator)) == authority
    assert data(kubernetes, brokers)["tls.crt"] != of_brokers["tls.crt"]
    assert sorted(restarted) == sorted(pods)
    renewed = [e for e in kubernetes.events if e.reason == "CertificatesRenewed"]
    assert len(renewed) == 1
    brokers_pods = [c for c in operator.acts() if c[1] == "Pod" and c[2].startswith("kafka-")]
    operator.rest(10)
    assert [c for c in operator.acts() if c[1] == "Pod" and c[2].startswith("kafka-")] == brokers_pods


@pytest.mark.parametrize("paused", [False, True])
def test_a_deleted_certificate_is_issued_anew_by_the_same_authority(operator: Operator, paused: bool) -> None:
    """Up to 912dfab a pause kept it away, and no controller's pod could start without it."""
    listening(operator)
    operator.walk(Phase.DUAL_WRITE)
    operator.edit(paused=paused)
    name = controllers_of(operator)
    before = data(operator.kubernetes, name)
    operator.kubernetes.delete("v1", "Secret", "kafka", name)
    operator.step(11)
    operator.rest(10)
    after = data(operator.kubernetes, name)
    assert (before["tls.crt"] != after["tls.crt"], before["ca.crt"]) == (True, after["ca.crt"])
    (warning,) = [e for e in operator.kubernetes.events if "is gone" in e.message]
    assert name in warning.message


def test_an_edited_certificate_is_never_overwritten_and_restarts_no_controller(operator: Operator) -> None:
    listening(operator)
    operator.walk(Phase.DUAL_WRITE)
    operator.rest(20)
    kubernetes, name = operator.kubernetes, controllers_of(operator)
    edited = {"data": {"tls.crt": base64.b64encode(b"edited").decode()}}
    kubernetes.merge_patch("v1", "Secret", "kafka", name, edited)
    before = len([c for c in operator.acts() if c[1] == "Pod"])
    operator.step(11)
    status = operator.rest(40)
    assert data(kubernetes, name)["tls.crt"] == b"edited"
    assert len([c for c in operator.acts() if c[1] == "Pod"]) == before
    assert status.listener_certificates is not None
    assert "tls.crt is not a certificate in PEM" in status.listener_certificates.problem
    assert "no controller restarts" in status.message
    assert f"Delete Secret {name}" in status.message
    assert (
        len([e for e in kubernetes.events if "is not a certificate in PEM" in e.message and e.reason == "Alarm"]) == 1
    )
    kubernetes.delete("v1", "Secret", "kafka", name)
    operator.step(11)
    status = operator.rest(120)
    assert status.listener_certificates is not None
    assert status.listener_certificates.problem == ""
    assert "no controller restarts" not in status.message


def test_a_lost_authority_is_never_replaced_once_there_are_controllers(operator: Operator) -> None:
    listening(operator)
    operator.walk(Phase.DUAL_WRITE)
    kubernetes, name = operator.kubernetes, authority_of(operator)
    kept = kubernetes.objects["Secret", "kafka", name]
    before = data(kubernetes, controllers_of(operator))
    kubernetes.delete("v1", "Secret", "kafka", name)
    operator.step(11)
    status = operator.rest(40)
    assert ("Secret", "kafka", name) not in kubernetes.objects
    assert data(kubernetes, controllers_of(operator)) == before
    assert status.listener_certificates is not None
    assert "certificates that it issued do" in status.listener_certificates.problem
    # Not even when nothing is left that it issued.
    for lost in (controllers_of(operator), f"demo-listener-brokers-{uid(operator)[:8]}"):
        kubernetes.delete("v1", "Secret", "kafka", lost)
    operator.step(11)
    operator.rest(20)
    assert ("Secret", "kafka", name) not in kubernetes.objects
    kubernetes.create(
        {k: v for k, v in kept.items() if k != "metadata"} | {"metadata": {"name": name, "namespace": "kafka"}}
    )
    operator.step(11)
    operator.rest(20)
    assert data(kubernetes, controllers_of(operator))["ca.crt"] == before["ca.crt"]


def test_preflight_names_an_edited_secret_and_issues_a_deleted_one(operator: Operator) -> None:
    listening(operator, "Preflight")
    operator.rest(20)
    kubernetes, name = operator.kubernetes, controllers_of(operator)
    assert operator.status().message.startswith("Preflight passed")
    kubernetes.merge_patch("v1", "Secret", "kafka", name, {"data": {"ca.crt": base64.b64encode(b"x").decode()}})
    operator.step(11)
    status = operator.rest(10)
    (found,) = [f for f in status.findings if f.code == "ListenerCertificateUnusable"]
    assert name in found.reason
    assert "delete it" in found.fix
    kubernetes.delete("v1", "Secret", "kafka", name)
    operator.step(11)
    assert operator.rest(20).message.startswith("Preflight passed")
    assert data(kubernetes, name)["ca.crt"] == data(kubernetes, authority_of(operator))["tls.crt"]


def test_two_certificates_for_one_listener_are_a_finding(operator: Operator) -> None:
    own = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "own", "namespace": "kafka"}}
    operator.kubernetes.create({**own, "data": {"tls.crt": base64.b64encode(b"x").decode()}})
    listening(operator, "Preflight", secretName="own")
    status = operator.rest(20)
    (found,) = [f for f in status.findings if f.code == "ListenerCertificateUnusable"]
    assert "Secret own has tls.crt" in found.reason


def test_secrets_that_cannot_be_created_keep_preflight_closed(operator: Operator) -> None:
    def refused(verb: str, kind: str, name: str) -> None:
        if verb == "create" and kind == "Secret" and "-listener" in name:
            raise ActionRefusedError("secrets is forbidden")

    operator.kubernetes.before_call = refused
    listening(operator)
    status = operator.rest(20)
    assert status.phase is Phase.PREFLIGHT
    assert "secrets is forbidden" in status.message
    assert ("StatefulSet", "kafka", f"demo-kraft-{uid(operator)[:8]}") not in operator.kubernetes.objects


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_after_a_rollback_the_brokers_secret_and_the_authority_stay(operator: Operator, protocol: str) -> None:
    listening(operator, securityProtocol=protocol)
    operator.walk(Phase.DUAL_WRITE)
    first, brokers = controllers_of(operator), f"demo-listener-brokers-{uid(operator)[:8]}"
    kept = {n: data(operator.kubernetes, n) for n in (authority_of(operator), brokers)}
    operator.edit(target="ZooKeeper")
    operator.walk(Phase.ROLLED_BACK, 400)
    operator.edit(target="DualWrite")
    operator.walk(Phase.DUAL_WRITE, 400)
    assert controllers_of(operator) == f"{operator.controllers()}-listener" != first
    assert {n: data(operator.kubernetes, n) for n in kept} == kept
    assert data(operator.kubernetes, controllers_of(operator))["ca.crt"] == kept[authority_of(operator)]["tls.crt"]
    assert operator.status().listener_certificates.problem == ""  # type: ignore[union-attr]


# ------------------------------------------------------------------------------------------------ logins


@dataclass(frozen=True)
class Issued:
    """The three Secrets of a migration whose logins the operator issues."""

    operator: Operator

    @property
    def names(self) -> tuple[str, str, str]:
        return (
            authority_of(self.operator),
            controllers_of(self.operator),
            f"demo-listener-brokers-{uid(self.operator)[:8]}",
        )

    def data(self) -> list[dict[str, bytes]]:
        return [data(self.operator.kubernetes, name) for name in self.names]

    def edit(self, name: str, **values: str | None) -> None:
        """Change keys of a Secret, named with an underscore for a dot; None removes one."""
        changed = {
            k.replace("_", "."): None if v is None else base64.b64encode(v.encode()).decode() for k, v in values.items()
        }
        self.operator.kubernetes.merge_patch("v1", "Secret", "kafka", name, {"data": changed})

    def delete(self, *lost: str) -> None:
        for name in lost:
            self.operator.kubernetes.delete("v1", "Secret", "kafka", name)

    def rest(self, steps: int = 40) -> MigrationStatus:
        self.operator.step(11)
        return self.operator.rest(steps)

    def controller_restarts(self) -> int:
        return len([c for c in self.operator.acts() if c[1] == "Pod"])

    def logins(self) -> None:
        """Assert that controllers and brokers have the logins of the authority's passwords."""
        authority, controllers, brokers = self.data()
        of_controllers, of_brokers = (authority[name].decode() for name in PASSWORDS)
        part = uid(self.operator)[:8]
        login = parse_properties(controllers["listener.properties"].decode())[
            "listener.name.controller.plain.sasl.jaas.config"
        ]
        assert f'username="kraftbridge-controllers-{part}" password="{of_controllers}"' in login
        assert f'user_kraftbridge-brokers-{part}="{of_brokers}"' in login
        assert f'username="kraftbridge-brokers-{part}" password="{of_brokers}"' in brokers["sasl.jaas.config"].decode()
        assert of_controllers not in brokers["sasl.jaas.config"].decode()


@pytest.fixture
def issued(operator: Operator) -> Issued:
    """Controllers run, and the operator has issued their logins."""
    listening(operator, securityProtocol="SASL_SSL")
    operator.walk(Phase.DUAL_WRITE)
    operator.rest(20)
    return Issued(operator)


def test_the_logins_are_in_the_secrets_and_their_users_are_super_users(issued: Issued) -> None:
    issued.logins()
    operator = issued.operator
    name = operator.controllers()
    part = uid(operator)[:8]
    data = operator.kubernetes.objects[operator.configuration()]["data"]
    settings = parse_properties(data["controller.properties"])
    assert settings["super.users"] == f"User:kraftbridge-controllers-{part};User:kraftbridge-brokers-{part}"
    pod = operator.kubernetes.objects["StatefulSet", "kafka", name]["spec"]["template"]["spec"]
    volumes = {v["name"]: v for v in pod["volumes"]}
    assert volumes["listener"]["projected"]["sources"] == [{"secret": {"name": controllers_of(operator)}}]


def test_the_operator_and_the_verifier_log_in_without_controller_properties(issued: Issued) -> None:
    kubernetes, name = issued.operator.kubernetes, issued.operator.controllers()
    spec = MigrationSpec.model_validate(issued.operator.migration()["spec"])
    client = clients._listener_client(kubernetes, "kafka", name, spec)
    security = Security.from_properties(client)
    assert (security.mechanism, security.username) == ("PLAIN", f"kraftbridge-controllers-{uid(issued.operator)[:8]}")
    assert security.password == issued.data()[0]["controllers.password"].decode()
    assert security.password not in repr(security)
    assert clients.shows_listener_certificate(kubernetes, "kafka", name, spec)
    listener = spec.controllers.listener.model_copy(update={"secret_name": "logins"})
    of_user = spec.model_copy(update={"controllers": spec.controllers.model_copy(update={"listener": listener})})
    kubernetes.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "logins", "namespace": "kafka"}, "data": {}})  # fmt: skip
    assert not clients.shows_listener_certificate(kubernetes, "kafka", name, of_user), "its login is the user's to give"


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_the_clients_can_be_opened_before_anything_is_issued(operator: Operator, protocol: str) -> None:
    listening(operator, securityProtocol=protocol)
    assert not [name for kind, _, name in operator.kubernetes.objects if kind == "Secret" and "listener" in name]
    spec = MigrationSpec.model_validate(operator.migration()["spec"])
    opened = clients.open_clients(operator.kubernetes, "kafka", "demo-kraft", spec, "cluster.local", "cluster.local")
    opened.close()
    client = Security.from_properties(clients._listener_client(operator.kubernetes, "kafka", "demo-kraft", spec))
    assert client.tls is not None, "never in clear text"
    assert client.mechanism is None


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("secret", ["kafka-clients", None])
def test_a_login_of_the_user_that_is_missing_is_named(operator: Operator, protocol: str, secret: str | None) -> None:
    """It said that GSSAPI in client.properties is not supported, a file that has nothing to do with it."""
    kubernetes = operator.kubernetes
    data = {"client.properties": base64.b64encode(b"security.protocol=PLAINTEXT").decode()}
    kubernetes.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": secret or "other", "namespace": "kafka"},
            "data": data,
        }
    )
    kubernetes.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "listener", "namespace": "kafka"}, "data": {}})  # fmt: skip
    document = spec_document()
    document["controllers"]["listener"] = {"securityProtocol": protocol, "secretName": "listener"}
    document["brokers"] |= {"clientConfigSecret": secret}
    spec = MigrationSpec.model_validate(document)
    with pytest.raises(InvalidSpecError, match="no login for the controllers' listener") as refused:
        clients.open_clients(kubernetes, "kafka", "demo-kraft", spec, "cluster.local", "cluster.local")
    lack = f"Secret kafka/{secret} has no key controller.properties" if secret else "clientConfigSecret is not set"
    assert lack in str(refused.value)
    assert "GSSAPI" not in str(refused.value)


def test_a_deleted_secret_gets_the_login_of_before(issued: Issued) -> None:
    _, controllers, brokers = issued.names
    before = issued.data()
    for lost in ((controllers,), (brokers,), (controllers, brokers)):
        issued.delete(*lost)
        status = issued.rest()
        assert status.listener_certificates is not None
        assert status.listener_certificates.problem == ""
    after = issued.data()
    assert before[0] == after[0]
    assert [b["tls.crt"] != a["tls.crt"] for b, a in zip(before[1:], after[1:], strict=True)] == [True, True]
    for key in ("listener.properties", "sasl.jaas.config"):
        assert [b.get(key) for b in before] == [a.get(key) for a in after]


def test_a_renewal_keeps_the_logins(operator: Operator) -> None:
    listening(operator, "KRaft", securityProtocol="SASL_SSL", certificateDays=365)
    operator.walk(Phase.COMPLETED, 400)
    before = Issued(operator).data()
    operator.step(250 * 86_400)
    operator.rest(60)
    after = Issued(operator).data()
    assert [e.reason for e in operator.kubernetes.events].count("CertificatesRenewed") == 1
    assert before[1]["tls.crt"] != after[1]["tls.crt"]
    assert before[0] == after[0]
    for key in ("listener.properties", "sasl.jaas.config", "password"):
        assert [b.get(key) for b in before] == [a.get(key) for a in after]


@pytest.mark.parametrize(
    ("which", "values", "words"),
    [
        (1, {"listener_properties": None}, "listener.properties is missing"),
        (1, {"listener_properties": "edited"}, "listener.properties does not hold the login"),
        (1, {"sasl_jaas_config": None}, "sasl.jaas.config is missing"),
        (2, {"sasl_jaas_config": None}, "sasl.jaas.config is missing"),
        (2, {"sasl_jaas_config": "edited"}, "sasl.jaas.config does not hold the login"),
    ],
)
def test_an_edited_login_is_never_overwritten_and_restarts_no_controller(
    issued: Issued, which: int, values: dict[str, str | None], words: str
) -> None:
    name, before = issued.names[which], issued.controller_restarts()
    issued.edit(name, **values)
    edited = issued.data()
    status = issued.rest()
    assert issued.data() == edited
    assert status.listener_certificates is not None
    assert f"Secret {name}: {words}" in status.listener_certificates.problem
    assert issued.controller_restarts() == before
    (alarm,) = [e for e in issued.operator.kubernetes.events if words in e.message and e.reason == "Alarm"]
    assert f"Delete Secret {name}" in alarm.message
    if which == 1:
        assert "no controller restarts" in status.message
    issued.delete(name)
    status = issued.rest(120)
    assert status.listener_certificates is not None
    assert status.listener_certificates.problem == ""
    issued.logins()


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("value", [None, "edited", "x" * 43])
def test_another_password_of_the_authority_is_named_and_changes_no_login(
    issued: Issued, password: str, value: str | None
) -> None:
    authority, before, restarts = issued.names[0], issued.data(), issued.controller_restarts()
    issued.edit(authority, **{password.replace(".", "_"): value})
    status = issued.rest()
    assert issued.data()[1:] == before[1:]
    assert issued.controller_restarts() == restarts
    assert status.listener_certificates is not None
    problem = status.listener_certificates.problem
    assert {None: f"{password} is missing", "edited": "is not a password that the operator made"}.get(
        value, f"if a password in Secret {authority} was changed, restore that one first"
    ) in problem
    assert "edited" not in problem
    assert "xxx" not in problem
    # Nothing is issued with it, either.
    if value != "x" * 43:
        issued.delete(issued.names[1])
        issued.rest()
        assert ("Secret", "kafka", issued.names[1]) not in issued.operator.kubernetes.objects
    issued.edit(authority, **{password.replace(".", "_"): before[0][password].decode()})
    status = issued.rest(80)
    assert status.listener_certificates is not None
    assert status.listener_certificates.problem == ""
    issued.logins()


def test_logins_that_do_not_match_are_named_without_the_authority(issued: Issued) -> None:
    authority, _, brokers = issued.names
    login = issued.data()[2]["sasl.jaas.config"].decode()
    issued.delete(authority)
    status = issued.rest()
    assert status.listener_certificates is not None
    assert "certificates that it issued do" in status.listener_certificates.problem
    assert brokers not in status.listener_certificates.problem
    issued.edit(brokers, sasl_jaas_config=login.replace('password="', 'password="x'))
    status = issued.rest()
    assert status.listener_certificates is not None
    assert f"Secret {brokers}: sasl.jaas.config does not hold the login" in status.listener_certificates.problem


def test_in_preflight_another_security_of_the_listener_is_issued_once_the_secrets_of_before_are_deleted(
    operator: Operator,
) -> None:
    listening(operator, "Preflight")
    operator.rest(20)
    assert operator.status().message.startswith("Preflight passed")
    issued = Issued(operator)
    assert not [key for secret in issued.data() for key in secret if key in (*PASSWORDS, "sasl.jaas.config")]
    listening(operator, "Preflight", securityProtocol="SASL_SSL")
    status = issued.rest(10)
    found = [f.reason for f in status.findings if f.code == "ListenerCertificateUnusable"]
    assert len(found) == 2
    assert any(f"Secret {issued.names[1]}: listener.properties has no logins" in reason for reason in found)
    assert any(f"Secret {issued.names[2]}: sasl.jaas.config is missing" in reason for reason in found)
    issued.delete(*issued.names[1:])
    assert issued.rest(20).message.startswith("Preflight passed")
    issued.logins()
    # Logins of the user's.
    own = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "own", "namespace": "kafka"}}
    operator.kubernetes.create({**own, "data": {"listener.properties": base64.b64encode(b"a=b").decode()}})
    listening(operator, "Preflight", securityProtocol="SASL_SSL", secretName="own")
    (reason,) = [f.reason for f in issued.rest(10).findings if f.code == "ListenerCertificateUnusable"]
    assert f"Secret {issued.names[1]}: its listener.properties hides that of Secret own" in reason
    issued.delete(issued.names[1])
    issued.rest(20)
    assert "listener.properties" not in issued.data()[1]


def test_a_process_that_dies_between_authority_and_passwords_is_caught_up(operator: Operator) -> None:
    died = []

    def refused(verb: str, kind: str, name: str) -> None:
        if verb == "merge_patch" and kind == "Secret" and "-listener-ca-" in name and not died:
            died.append(name)
            raise ActionRefusedError("no")

    operator.kubernetes.before_call = refused
    listening(operator, "Preflight", securityProtocol="SASL_SSL")
    assert operator.rest(20).message.startswith("Preflight passed")
    assert died
    Issued(operator).logins()
