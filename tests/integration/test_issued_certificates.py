"""Certificates and logins that the operator issues, with real nodes: three controllers and two brokers, a migration's takeover, a renewal, strangers."""

from __future__ import annotations

import base64
import os
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from tests.support.controller_pod import controller_pod
from tests.support.fakes import Clock, FakeKubernetes
from tests.support.kafka_processes import MIGRATION, ZOOKEEPER, KafkaProcesses, kafka_processes, wait_for
from tests.support.programs import die_with_parent

from kraftbridge.builders import names
from kraftbridge.builders.broker_overlays import quorum_voters, render_properties
from kraftbridge.builders.controllers import ControllersFacts, controller_settings
from kraftbridge.constants import ACL_AUTHORIZER, canary_topic
from kraftbridge.exceptions import MigrationError
from kraftbridge.kafka.client import Security
from kraftbridge.kafka.wire import Connection, WireError
from kraftbridge.listener import authority
from kraftbridge.models.phase import ControllerMode
from kraftbridge.models.report import Profile, VerificationRequest, VoterAccess
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import MigrationStatus, controllers_name
from kraftbridge.outside.properties import parse_properties
from kraftbridge.phases.draft import Identity, Migration
from kraftbridge.pods.credentials import CERTIFICATE, client_properties
from kraftbridge.pods.credentials import main as init_container
from kraftbridge.services.certificates import ListenerIssuer, issued_principals
from kraftbridge.services.clients import listener_data
from kraftbridge.storage.kafka_brokers import BrokerClient
from kraftbridge.storage.kafka_controllers import ControllerClient
from kraftbridge.verification.quorum import controller_security, describe_quorum

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]

NODES = (3000, 3001, 3002)
NAMESPACE, DOMAIN, UID = "kafka", "cluster.local", "1a2b3c4d-0000"
IDENTITY = Identity(NAMESPACE, "shop", UID, 1, cluster_domain=DOMAIN)
CONTROLLERS = controllers_name("shop", UID, 1)
BROKERS_SECRET = names.issued_brokers_secret("shop", UID)
LONG_AGO = timedelta(days=1500)
"""More than two thirds of a certificate's lifetime."""
SPEC = MigrationSpec.model_validate(
    {
        "zookeeper": {"connect": "zookeeper:2181/kafka"},
        "brokers": {"statefulSets": [{"name": "kafka"}], "bootstrapServers": "kafka-0.kafka:9092"},
        "controllers": {"listener": {"generate": True}},
    }
)
LOGIN = "listener.name.controller.plain.sasl.jaas.config"


class Cluster(KafkaProcesses):
    """Nodes with the files of the Secrets as Kubernetes would mount them. Controllers start as their pods do."""

    kubernetes: FakeKubernetes
    cluster_id = ""
    protocol = "SSL"
    settings_of_brokers: Mapping[str, str] = {}
    """What a test changes of the brokers' side."""
    mode = ControllerMode.MIGRATION
    with_metrics = False

    @property
    def spec(self) -> MigrationSpec:
        listener = SPEC.controllers.listener.model_copy(update={"security_protocol": self.protocol})
        return SPEC.model_copy(update={"controllers": SPEC.controllers.model_copy(update={"listener": listener})})

    def issued(self) -> ListenerIssuer:
        return ListenerIssuer(self.kubernetes, Migration(IDENTITY, self.spec, MigrationStatus()))

    def files(self, secret: str) -> dict[str, bytes]:
        found = self.kubernetes.get("v1", "Secret", NAMESPACE, secret)
        assert found is not None
        return {k: base64.b64decode(v) for k, v in found["data"].items()}

    def mount(self, secret: str, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.files(secret).items():
            (folder / name).write_bytes(content)
        return folder

    @property
    def hosts(self) -> dict[int, str]:
        return names.controller_hosts(CONTROLLERS, NAMESPACE, NODES, DOMAIN)

    @property
    def _voters(self) -> str:
        voters = quorum_voters(SPEC, CONTROLLERS, NAMESPACE, DOMAIN)
        for node, host in self.hosts.items():
            voters = voters.replace(f"{host}:9093", f"{host}:{self.controller_ports[node]}")
        return voters

    def _command(self, arguments: Any, options: Any = (), libraries: Path | None = None) -> list[str]:
        known = ["localhost", socket.gethostname(), *self.hosts.values()]
        path = self._write("hosts", "".join(f"127.0.0.1 {host}\n" for host in known))
        return super()._command(arguments, [f"-Djdk.net.hosts.file={path}", *options], libraries)

    def _broker_properties(self, broker_id: int, mode: str) -> str:
        path = Path(super()._broker_properties(broker_id, mode))
        text = path.read_text().replace("CONTROLLER:PLAINTEXT", f"CONTROLLER:{self.protocol}")
        folder = self.mount(BROKERS_SECRET, self.directory / f"mounted-{broker_id}")
        text += f"authorizer.class.name={ACL_AUTHORIZER}\nsuper.users=User:ANONYMOUS\n"
        return self._write(
            path.name, text + render_properties(self.broker_side(broker_id, folder) | self.settings_of_brokers)
        )

    def broker_side(self, broker_id: int, folder: Path) -> dict[str, str]:
        return broker_side(broker_id, folder)

    def start_issued_controller(self, node: int) -> None:
        """Start a controller on what its Secret holds now: the init container, then the start script."""
        pod = controller_pod(self.directory / f"pod-{node}")
        at = pod.root / "etc"
        self.mount(names.issued_listener_secret(CONTROLLERS), at / "kraftbridge-listener")
        arguments = ["--listener", f"{at}/kraftbridge-listener", "--protocol", self.protocol]
        assert init_container([*arguments, "--directory", f"{at}/kraftbridge-credentials"]) == 0
        facts = ControllersFacts(
            NAMESPACE, "shop", CONTROLLERS, DOMAIN, self.cluster_id, {"authorizer.class.name": ACL_AUTHORIZER}, "", "", (),
            issued_principals=issued_principals(UID, self.spec.controllers.listener),
        )  # fmt: skip
        own = controller_settings(self.spec, facts, self.mode) | {
            "log.dirs": f"{pod.root}/data/kafka",
            "listeners": f"CONTROLLER://:{self.controller_ports[node]}",
            "controller.quorum.voters": self._voters,
        }
        if self.mode.migrates:
            own["zookeeper.connect"] = f"{self.zookeeper_hosts}/kafka"
        pod.write("/etc/kraftbridge/controller.properties", render_properties(own))
        for script, program in {"storage": "kafka.tools.StorageTool", "server-start": "kafka.Kafka"}.items():
            tool = pod.root / f"opt/kafka/bin/kafka-{script}.sh"
            agent = (
                [self._agent_option(self.metrics_ports[node])] if self.with_metrics and program == "kafka.Kafka" else []
            )
            before, _, after = " ".join(f"'{word}'" for word in self._command([program], ["@", *agent])).partition(
                "'@'"
            )
            tool.write_text(f'#!/bin/bash\nexec {before} {after} "$@"\n')
        name = f"controller-{node}"
        environment = os.environ | {"NODE_ID": str(node), "CLUSTER_ID": self.cluster_id, "EXPORTER": ""}
        with (self.directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                ["bash", "-c", pod.script], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, preexec_fn=die_with_parent,  # noqa: PLW1509 - one C call, no locks
            )  # fmt: skip
        self.wait_for_port(name, self.controller_ports[node])

    def client(self) -> dict[str, str]:
        """Return how the operator connects to the controllers."""
        return client_properties(listener_data(self.kubernetes, NAMESPACE, CONTROLLERS, self.spec), self.protocol)

    def agree(self, properties: Mapping[str, str]) -> bool:
        """Return whether every voter follows one leader."""
        client = ControllerClient(
            {node: (host, self.controller_ports[node]) for node, host in self.hosts.items()}, properties
        )
        try:
            state = client.quorum_state()
            return state.high_watermark > 0 and state.max_lag_records == 0 and len(state.voters) == len(NODES)
        finally:
            client.close()

    def connect(self, node: int, properties: Mapping[str, str]) -> x509.Certificate:
        """Let a client in at a controller; return the certificate that the controller shows."""
        with Connection(
            "127.0.0.1", self.controller_ports[node], Security.from_properties(properties), 20, self.hosts[node]
        ) as connection:
            assert connection.usable
            shown = connection._socket.getpeercert(binary_form=True)  # type: ignore[union-attr]
            return x509.load_der_x509_certificate(shown)

    def change_arrives(self, value: int) -> None:
        """A change that the controllers commit is served by both brokers: each is let in at the controllers, and may register."""
        addresses = {node: (host, self.controller_ports[node]) for node, host in self.hosts.items()}
        controllers, brokers = ControllerClient(addresses, self.client()), BrokerClient(self.bootstrap_servers, {})

        def written() -> bool:
            controllers.write_canary(value, 2)
            return True

        try:
            wait_for("the change is committed", written)
            wait_for("every broker serves it", lambda: dict(brokers.serves_topic(canary_topic(value))) == {0: True, 1: True}, 120)  # fmt: skip
        finally:
            controllers.close()
            brokers.close()


def broker_side(broker_id: int, folder: Path) -> dict[str, str]:
    """Return the brokers' settings of docs/security.md: PEM, and PKCS#12 for a broker whose own stores have passwords."""
    prefix = "listener.name.controller.ssl"
    if broker_id == 0:
        return {
            f"{prefix}.keystore.type": "PEM",
            f"{prefix}.keystore.location": f"{folder}/keystore.pem",
            f"{prefix}.truststore.type": "PEM",
            f"{prefix}.truststore.location": f"{folder}/ca.crt",
        }
    password = (folder / "password").read_text()
    inherited = {
        "ssl.keystore.password": "another",
        "ssl.key.password": "another",
        "ssl.truststore.password": "another",
    }
    return inherited | {
        f"{prefix}.keystore.type": "PKCS12",
        f"{prefix}.keystore.location": f"{folder}/keystore.p12",
        f"{prefix}.keystore.password": password,
        f"{prefix}.key.password": password,
        f"{prefix}.truststore.type": "PKCS12",
        f"{prefix}.truststore.location": f"{folder}/truststore.p12",
        f"{prefix}.truststore.password": password,
    }


class ClusterWithLogins(Cluster):
    """The same nodes with logins instead of certificates of clients."""

    protocol = "SASL_SSL"

    def broker_side(self, broker_id: int, folder: Path) -> dict[str, str]:
        """Return the brokers' settings of docs/security.md: trust and login."""
        trust = {k: v for k, v in broker_side(broker_id, folder).items() if "keystore" not in k and "key.p" not in k}
        login = (folder / "sasl.jaas.config").read_text()  # a variable with secretKeyRef
        return trust | {"sasl.mechanism.controller.protocol": "PLAIN", LOGIN: login}


@pytest.fixture(scope="module")
def names_resolve() -> Iterator[None]:
    """Let this process, like the JVMs, find the controllers' names on this host."""
    real = socket.getaddrinfo

    def found(host: Any, *arguments: Any, **options: Any) -> Any:
        here = "127.0.0.1" if str(host).endswith(f".{DOMAIN}") else host
        return real(here, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", found)
        yield


@pytest.fixture(scope="module")
def cluster(names_resolve: None, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Nodes that run on certificates of long ago, up to the takeover. One kind of cluster runs at a time."""
    with kafka_processes([0, 1], NODES, request.param) as processes:
        processes.kubernetes = FakeKubernetes(Clock())
        processes.issued().issue(datetime.now(UTC) - LONG_AGO)
        processes.start_zookeeper()
        for broker in (0, 1):
            processes.start_broker(broker, ZOOKEEPER)
        meta = processes.directory / "broker-0/meta.properties"
        processes.cluster_id = wait_for(
            "the cluster's id", lambda: parse_properties(meta.read_text())["cluster.id"] if meta.exists() else ""
        )
        for node in NODES:
            processes.start_issued_controller(node)
        wait_for("the quorum", lambda: processes.agree(processes.client()))
        for broker in (0, 1):
            processes.stop(f"broker-{broker}")
            processes.start_broker(broker, MIGRATION)
        yield processes


with_certificates = pytest.mark.parametrize("cluster", [Cluster], indirect=True, ids=["SSL"])
with_logins = pytest.mark.parametrize("cluster", [ClusterWithLogins], indirect=True, ids=["SASL_SSL"])


@pytest.mark.parametrize("cluster", [Cluster, ClusterWithLogins], indirect=True, ids=["SSL", "SASL_SSL"])
def test_brokers_log_in_through_the_issued_files_and_the_takeover_happens(cluster: Cluster) -> None:
    cluster.change_arrives(1)


@with_certificates
def test_strangers_are_refused(cluster: Cluster) -> None:
    own = cluster.client()
    assert cluster.connect(NODES[0], own)
    now = datetime.now(UTC)
    other = {k: v.decode() for k, v in authority.new_authority("another", now).items()}
    subject = authority.Purpose(authority.principals(UID[:8])["brokers"])
    forged = {k: v.decode() for k, v in authority.issue(other, subject, 30, now).items()}
    stranger = client_properties(forged, "SSL") | {"ssl.truststore.certificates": own["ssl.truststore.certificates"]}
    without = {k: v for k, v in own.items() if "keystore" not in k}
    for refused in (stranger, without):
        with pytest.raises(WireError):
            cluster.connect(NODES[0], refused)
    with pytest.raises(WireError, match=r"(?i)certificate"):
        cluster.connect(NODES[0], own | {"ssl.truststore.certificates": other[CERTIFICATE]})


@with_certificates
def test_after_a_renewal_voters_and_brokers_still_trust_each_other(cluster: Cluster) -> None:
    secret = names.issued_listener_secret(CONTROLLERS)
    before, brokers_before = cluster.files(secret), cluster.files(BROKERS_SECRET)
    old_client = cluster.client()
    seen = cluster.issued().look(datetime.now(UTC))
    assert (seen.controllers.due, seen.brokers.due, seen.problems) == (True, True, ())
    cluster.issued().issue(datetime.now(UTC))
    after, brokers_after = cluster.files(secret), cluster.files(BROKERS_SECRET)
    assert before["tls.crt"] != after["tls.crt"]
    assert before["ca.crt"] == after["ca.crt"] == brokers_after["ca.crt"]
    assert brokers_before["password"] == brokers_after["password"]
    for number, node in enumerate(NODES):  # one after the other, as the operator rolls a changed Secret out
        cluster.stop(f"controller-{node}")
        cluster.start_issued_controller(node)
        wait_for("every voter follows the leader again", lambda: cluster.agree(old_client))
        assert cluster.connect(node, old_client) == x509.load_pem_x509_certificate(after["tls.crt"])
        cluster.change_arrives(10 + number)
    assert wait_for("the renewed certificate is let in", lambda: cluster.agree(cluster.client()))
    for broker in (0, 1):  # with its renewed certificate
        cluster.stop(f"broker-{broker}")
        cluster.start_broker(broker, MIGRATION)
    cluster.change_arrives(20)


@with_certificates
def test_a_controller_with_another_authoritys_certificate_does_not_join(cluster: Cluster) -> None:
    """What the operator must not roll out: an edited Secret."""
    node = NODES[-1]
    cluster.stop(f"controller-{node}")
    folder = cluster.directory / f"pod-{node}/etc/kraftbridge-listener"
    good = {p.name: p.read_bytes() for p in folder.iterdir()}
    assert good
    name = names.issued_listener_secret(CONTROLLERS)
    kept = cluster.kubernetes.objects["Secret", NAMESPACE, name]
    now = datetime.now(UTC)
    other = {k: v.decode() for k, v in authority.new_authority("another", now).items()}
    purpose = authority.Purpose(authority.principals(UID[:8])["controllers"], tuple(cluster.hosts.values()))
    edited = authority.issue(other, purpose, 30, now)
    cluster.kubernetes.objects["Secret", NAMESPACE, name] = {
        **kept,
        "data": {k: base64.b64encode(v).decode() for k, v in edited.items()},
    }
    try:
        assert "is not the operator's authority" in cluster.issued().look(now).controllers.problem
        cluster.start_issued_controller(node)
        with pytest.raises((AssertionError, MigrationError)):
            wait_for("the quorum", lambda: cluster.agree(cluster.client()), 15)
    finally:
        cluster.kubernetes.objects["Secret", NAMESPACE, name] = kept
    cluster.stop(f"controller-{node}")
    cluster.start_issued_controller(node)
    wait_for("the quorum is whole again", lambda: cluster.agree(cluster.client()))


@with_logins
def test_operator_and_verifier_read_the_quorum_with_the_controllers_login(cluster: Cluster) -> None:
    assert wait_for("every voter follows the leader", lambda: cluster.agree(cluster.client()))
    voters = [
        VoterAccess(id=node, log_url="https://x", host=host, port=cluster.controller_ports[node])
        for node, host in cluster.hosts.items()
    ]
    mounted = cluster.mount(names.issued_listener_secret(CONTROLLERS), cluster.directory / "mounted-verifier")
    request = VerificationRequest(
        run_id="r", profile=Profile.REPLICAS, voters=voters, listener_secret_path=str(mounted), listener_login=True
    )
    assert set(describe_quorum(voters, controller_security(request)).end_offsets) == set(NODES)


@with_logins
def test_without_the_right_login_nobody_is_let_in(cluster: Cluster) -> None:
    own, jaas = cluster.client(), "sasl.jaas.config"
    of_brokers = cluster.files(BROKERS_SECRET)[jaas].decode()
    assert cluster.connect(NODES[0], own)
    assert cluster.connect(NODES[0], own | {jaas: of_brokers})
    users = authority.principals(UID[:8])
    refused = {
        "a wrong password": own[jaas].replace('password="', 'password="x'),
        "an empty password": re.sub('password="[^"]*"', 'password=""', own[jaas]),
        "a stranger": own[jaas].replace(users["controllers"], "stranger"),
        "the password of another user": of_brokers.replace(users["brokers"], users["controllers"]),
    }
    for who, login in refused.items():
        assert login not in (own[jaas], of_brokers), who
        with pytest.raises(WireError, match=r"(?i)auth|password"):
            cluster.connect(NODES[0], own | {jaas: login})
    # A certificate of the authority is no login.
    certificate = {k: v.decode() for k, v in cluster.files(BROKERS_SECRET).items() if k in ("tls.crt", "tls.key", "ca.crt")}  # fmt: skip
    with pytest.raises(MigrationError):
        cluster.agree(client_properties(certificate, "SSL"))
    other = {k: v.decode() for k, v in authority.new_authority("another", datetime.now(UTC)).items()}
    with pytest.raises(WireError, match=r"(?i)certificate"):
        cluster.connect(NODES[0], own | {"ssl.truststore.certificates": other[CERTIFICATE]})


@with_logins
def test_a_broker_with_a_wrong_password_does_not_join_and_one_with_the_issued_login_does(cluster: Cluster) -> None:
    log = cluster.directory / "broker-1.log"

    def refused() -> bool:
        return "Authentication failed: Invalid username or password" in log.read_text()[begin:]

    cluster.stop("broker-1")
    begin = len(log.read_text())
    wrong = cluster.files(BROKERS_SECRET)["sasl.jaas.config"].decode().replace('password="', 'password="x')
    cluster.settings_of_brokers = {LOGIN: wrong}
    try:
        cluster.start_broker(1, MIGRATION, wait=False)
        wait_for("the controllers refuse the broker", refused)
    finally:
        cluster.settings_of_brokers = {}
    cluster.stop("broker-1")
    begin = len(log.read_text())
    cluster.start_broker(1, MIGRATION)
    cluster.change_arrives(2)
    assert not refused()


@with_logins
def test_deleted_and_renewed_secrets_keep_the_logins_of_running_nodes(cluster: Cluster) -> None:
    secret, old_client = names.issued_listener_secret(CONTROLLERS), cluster.client()
    before, brokers_before = cluster.files(secret), cluster.files(BROKERS_SECRET)
    cluster.kubernetes.delete("v1", "Secret", NAMESPACE, secret)
    cluster.issued().issue(datetime.now(UTC))  # the controllers' is issued anew, the brokers' is renewed
    after, brokers_after = cluster.files(secret), cluster.files(BROKERS_SECRET)
    assert before["tls.crt"] != after["tls.crt"]
    assert brokers_before["tls.crt"] != brokers_after["tls.crt"]
    assert (before["listener.properties"], brokers_before["sasl.jaas.config"]) == (
        after["listener.properties"],
        brokers_after["sasl.jaas.config"],
    )
    for number, node in enumerate(NODES):
        cluster.stop(f"controller-{node}")
        cluster.start_issued_controller(node)
        wait_for("every voter follows the leader again", lambda: cluster.agree(old_client))
        cluster.change_arrives(10 + number)
    assert wait_for("the issued login is let in", lambda: cluster.agree(cluster.client()))
    assert cluster.issued().look(datetime.now(UTC)).problems == ()
