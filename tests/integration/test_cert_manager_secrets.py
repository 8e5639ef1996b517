"""Real KRaft controllers with mTLS from Secrets as cert-manager writes them: what the init container writes, a rotation, and what the operator reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cert_manager import Issuer, KeyKind, authority, secret
from tests.support.kafka_processes import FINAL, KafkaProcesses, ProcessFailedError, kafka_processes, wait_for

from kraftbridge.exceptions import MigrationError
from kraftbridge.models.report import Profile, VerificationRequest, VoterAccess
from kraftbridge.pods.credentials import LISTENER_FOLDER, client_properties, main
from kraftbridge.storage.kafka_controllers import ControllerClient
from kraftbridge.verification.quorum import controller_security, describe_quorum

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.xdist_group("kafka-processes")]

CONTROLLERS = (3000, 3001)
CLUSTER_ID = "Zm9yLWNlcnQtbWFuYWdlcg"


class MutualTls(KafkaProcesses):
    """Controllers that authorize, each with the certificates of a mounted Secret."""

    def mount(self, controller_id: int, data: dict[str, str]) -> Path:
        """Mount a Secret and run the init container; return the directory of the Secret."""
        mounted = self.directory / f"secret-{controller_id}"
        mounted.mkdir(exist_ok=True)
        for name, text in data.items():
            (mounted / name).write_text(text)
        assert (
            main(["--listener", str(mounted), "--protocol", "SSL", "--directory", str(self._out(controller_id))]) == 0
        )
        return mounted

    def _out(self, controller_id: int) -> Path:
        return self.directory / f"credentials-{controller_id}"

    def _controller_properties(self, controller_id: int, mode: str) -> str:
        path = Path(super()._controller_properties(controller_id, mode))
        text = path.read_text().replace("CONTROLLER:PLAINTEXT", "CONTROLLER:SSL")
        text += (
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\nsuper.users=User:CN=kafka\n"
        )
        text += (self._out(controller_id) / LISTENER_FOLDER / "listener.properties").read_text()
        return self._write(path.name, text)

    def agree(self, properties: dict[str, str]) -> bool:
        """Return whether every voter follows one leader, as a client with these settings sees it."""
        client = ControllerClient(self.controller_addresses, properties)
        try:
            state = client.quorum_state()
            return state.high_watermark > 0 and state.max_lag_records == 0 and len(state.voters) == len(CONTROLLERS)
        finally:
            client.close()


@pytest.mark.parametrize("kind", [KeyKind.RSA_PKCS1, KeyKind.ECDSA_PKCS1], ids=str)
def test_voters_and_clients_trust_each_other_through_a_rotation_of_the_authority(kind: KeyKind) -> None:
    former, new = authority("the former root"), authority("the new root")

    def issued(root: Issuer, other: Issuer) -> dict[str, str]:
        # The bundle has both roots before the first certificate of the new one is used.
        return secret(authority("an intermediate", root), kind=kind, bundle=[other])

    with kafka_processes([], CONTROLLERS, MutualTls) as processes:
        mounted = {node: processes.mount(node, issued(former, new)) for node in CONTROLLERS}
        for node in CONTROLLERS:
            processes.format_controller(node, CLUSTER_ID, FINAL)
            processes.start_controller(node, FINAL)
        own = client_properties(issued(former, new), "SSL")
        wait_for("every voter follows the leader", lambda: processes.agree(own))

        # The verifier reads the mounted Secret.
        voters = [
            VoterAccess(id=i, log_url="https://x", host=h, port=p)
            for i, (h, p) in processes.controller_addresses.items()
        ]
        request = VerificationRequest(
            run_id="r", profile=Profile.REPLICAS, voters=voters, listener_secret_path=str(mounted[3000])
        )
        assert set(describe_quorum(voters, controller_security(request)).end_offsets) == set(CONTROLLERS)

        # One voter after the other, as the operator rolls a changed Secret out.
        for node in CONTROLLERS:
            processes.stop(f"controller-{node}")
            processes.mount(node, issued(new, former))
            processes.start_controller(node, FINAL)
            wait_for("every voter follows the leader again", lambda: processes.agree(own))
        wait_for(
            "a client of the new authority is let in",
            lambda: processes.agree(client_properties(issued(new, former), "SSL")),
        )

        stranger = client_properties(secret(authority("nobody's"), bundle=[former, new], kind=kind), "SSL")
        without = {name: value for name, value in own.items() if "keystore" not in name}
        for refused in (stranger, without):
            with pytest.raises(MigrationError):
                processes.agree(refused)


def test_kafka_itself_does_not_read_the_key_as_cert_manager_writes_it() -> None:
    data = secret(authority(), kind=KeyKind.RSA_PKCS1)
    with kafka_processes([], CONTROLLERS[:1], MutualTls) as processes:
        processes.mount(CONTROLLERS[0], data)
        processes.format_controller(CONTROLLERS[0], CLUSTER_ID, FINAL)
        (processes.directory / f"credentials-{CONTROLLERS[0]}/{LISTENER_FOLDER}/keystore.pem").write_text(
            data["tls.key"] + data["tls.crt"]
        )
        with pytest.raises(ProcessFailedError, match=r"Failed to load PEM SSL keystore|could not be loaded|InvalidKey"):
            processes.start_controller(CONTROLLERS[0], FINAL)
