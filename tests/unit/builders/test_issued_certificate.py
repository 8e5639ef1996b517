"""The certificate that the operator issues to the brokers: the overlay brings it to brokers that have none of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml
from tests.support.observations import spec_document
from tests.unit.builders.test_brokers import FACTS, FILE, environment_in

from kraftbridge.builders import broker_overlays as brokers
from kraftbridge.builders import hand_over
from kraftbridge.builders.broker_overlays import overlay, properties_object, takes_issued_certificate
from kraftbridge.builders.dry_start_pods import overlaid
from kraftbridge.models.mounted_files import FilesKind, MountedFiles
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.outside.properties import parse_properties
from kraftbridge.services.observe.workloads import drift_of, foreign_changes

SECRET = "demo-listener-brokers-1a2b3c4d"
ISSUED = replace(FACTS, issued_secret=SECRET)
MODES = [BrokerMode.MIGRATION, BrokerMode.KRAFT]
STYLES = ["Env", "Properties"]
MOUNT = {"name": "kraftbridge-listener", "mountPath": "/etc/kraftbridge-listener", "readOnly": True}
OWN = {
    "metadata": {"name": "kafka", "annotations": {}},
    "spec": {
        "template": {
            "metadata": {},
            "spec": {
                "containers": [
                    {"name": "kafka", "env": [], "volumeMounts": [{"name": "data", "mountPath": "/data"}]},
                    {"name": "exporter"},
                ],
                "volumes": [{"name": "config", "configMap": {"name": "kafka-config"}}],
            },
        }
    },
}


def spec(style: str = "Env", protocol: str = "SSL", **listener: Any) -> MigrationSpec:
    document = spec_document()
    document["brokers"] |= {"configStyle": style}
    if style == "Properties":
        document["brokers"]["properties"] = {"volume": "config"}
    document["controllers"]["listener"] = {"securityProtocol": protocol, "generate": True, **listener}
    return MigrationSpec.model_validate(document)


@pytest.mark.parametrize(
    ("protocol", "own", "taken"),
    [
        ("SSL", [], True),
        ("SSL", ["ssl.keystore.location", "ssl.truststore.location", "ssl.keystore.type"], True),
        ("SSL", ["listener.name.client.ssl.keystore.password"], True),  # another listener's is not inherited
        ("SSL", ["listener.name.controller.ssl.truststore.location"], False),
        ("SSL", ["ssl.keystore.password"], False),
        ("SSL", ["ssl.key.password"], False),
        ("SSL", ["ssl.truststore.password"], False),
        ("SSL", ["ssl.keystore.key"], False),
        ("SASL_SSL", [], False),
    ],
)
def test_only_brokers_without_a_certificate_for_this_listener_get_one(
    protocol: str, own: list[str], *, taken: bool
) -> None:
    assert takes_issued_certificate(spec(protocol=protocol), own) is taken
    given = spec(protocol=protocol, generate=False, secretName="listener")
    assert not takes_issued_certificate(given, own)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("style", STYLES)
def test_the_overlay_mounts_the_secret_and_names_its_files(style: str, mode: BrokerMode) -> None:
    facts = replace(ISSUED, files=MountedFiles(FilesKind.CONFIG_MAP, "kafka-config", {"server.properties": FILE}))
    pod = overlay(spec(style), facts, "kafka", mode)["spec"]["template"]["spec"]
    assert pod["containers"][0]["volumeMounts"] == [MOUNT]
    (volume,) = [v for v in pod["volumes"] if v["name"] == MOUNT["name"]]
    assert volume["secret"]["secretName"] == SECRET
    files = {item["path"] for item in volume["secret"]["items"]}
    if style == "Env":
        built = environment_in(overlay(spec(style), facts, "kafka", mode))
        prefix = "KAFKA_LISTENER_NAME_CONTROLLER_SSL_"
        places = [built[f"{prefix}KEYSTORE_LOCATION"], built[f"{prefix}TRUSTSTORE_LOCATION"]]
    else:
        rendered = properties_object(spec(style), facts, "demo", mode)
        assert rendered is not None
        settings = parse_properties(rendered["data"]["server.properties"])
        prefix = "listener.name.controller.ssl."
        places = [settings[f"{prefix}keystore.location"], settings[f"{prefix}truststore.location"]]
    assert {place.rpartition("/")[0] for place in places} == {MOUNT["mountPath"]}
    assert {place.rpartition("/")[2] for place in places} == files


@pytest.mark.parametrize("style", STYLES)
def test_without_an_issued_secret_nothing_is_mounted(style: str) -> None:
    pod = overlay(spec(style), FACTS, "kafka", BrokerMode.KRAFT)["spec"]["template"]["spec"]
    assert "volumeMounts" not in pod["containers"][0]
    assert MOUNT["name"] not in str(pod)


def test_a_copy_of_the_pod_has_the_certificate_beside_what_the_user_mounts() -> None:
    changed, _ = overlaid(spec(), ISSUED, "demo", OWN, BrokerMode.MIGRATION)
    pod = changed["spec"]["template"]["spec"]
    kafka, exporter = pod["containers"]
    assert kafka["volumeMounts"] == [{"name": "data", "mountPath": "/data"}, MOUNT]
    assert "volumeMounts" not in exporter
    assert {v["name"] for v in pod["volumes"]} == {"config", MOUNT["name"]}
    same, _ = overlaid(spec(), ISSUED, "demo", OWN, BrokerMode.ZOOKEEPER)
    assert same == OWN


def test_a_lost_mount_is_drift_and_the_volume_is_no_foreign_change() -> None:
    changed, _ = overlaid(spec(), ISSUED, "demo", OWN, BrokerMode.KRAFT)
    annotation = overlay(spec(), ISSUED, "kafka", BrokerMode.KRAFT)["spec"]["template"]["metadata"]
    changed["spec"]["template"]["metadata"] = annotation
    assert drift_of(spec(), ISSUED, changed) == ()
    ours = brokers.environment(spec(), ISSUED, BrokerMode.KRAFT).keys()
    was = OWN["spec"]["template"]["spec"]  # type: ignore[index]
    assert foreign_changes(spec(), was["containers"][0], was["volumes"], ours, changed) == ()
    changed["spec"]["template"]["spec"]["containers"][0]["volumeMounts"].pop()
    assert drift_of(spec(), ISSUED, changed) == ("mount /etc/kraftbridge-listener",)
    changed["spec"]["template"]["spec"]["volumes"].pop()
    assert "volume kraftbridge-listener" in drift_of(spec(), ISSUED, changed)


@pytest.mark.parametrize("style", STYLES)
def test_the_next_release_must_mount_it_and_is_told_how(style: str) -> None:
    facts = replace(ISSUED, files=MountedFiles(FilesKind.CONFIG_MAP, "kafka-config", {"server.properties": FILE}))
    needed = hand_over.required(spec(style), facts, "kafka")
    assert needed.issued_secret == SECRET
    live = overlay(spec(style), facts, "kafka", BrokerMode.KRAFT)["spec"]["template"]
    assert hand_over.lacking(needed, live) == ()
    live["spec"]["volumes"] = [v for v in live["spec"]["volumes"] if v["name"] != MOUNT["name"]]
    assert hand_over.lacking(needed, live) == (f"a volume with Secret {SECRET}",)
    files = hand_over.broker_manifests(spec(style), {"kafka": facts}, "demo")
    values = yaml.safe_load(files["values-bitnami-kafka.yaml"])
    assert values["extraVolumeMounts"] == [MOUNT]
    assert [v["secret"]["secretName"] for v in values["extraVolumes"]] == [SECRET]
    assert SECRET in files["kustomize-patch.yaml"]


def test_a_next_release_that_mounts_it_in_another_container_lacks_it() -> None:
    """Charts take volumes and their mounts from two values; without the mount Kafka finds no keystore and ends."""
    needed = hand_over.required(spec(), ISSUED, "kafka")
    live = overlay(spec(), ISSUED, "kafka", BrokerMode.KRAFT)["spec"]["template"]
    mounts = live["spec"]["containers"][0].pop("volumeMounts")
    live["spec"]["containers"].append({"name": "exporter", "volumeMounts": mounts})
    assert hand_over.lacking(needed, live) == (f"a mount of Secret {SECRET} in container kafka",)


def owned(*, volume: bool, mount: bool) -> dict[str, Any]:
    """Return a StatefulSet of which somebody else has applied all variables, and the certificate as told."""
    needed = hand_over.required(spec(), ISSUED, "kafka")
    container: dict[str, Any] = {
        "f:env": {f'k:{{"name":"{v.name}"}}': {"f:value": {}} for v in needed.variables},
        "f:volumeMounts": {f'k:{{"mountPath":"{MOUNT["mountPath"]}"}}': {"f:name": {}} if mount else None},
    }
    pod: dict[str, Any] = {"f:containers": {'k:{"name":"kafka"}': container}}
    if volume:
        pod["f:volumes"] = {f'k:{{"name":"{MOUNT["name"]}"}}': {"f:secret": {"f:secretName": {}}}}
    live = overlay(spec(), ISSUED, "kafka", BrokerMode.KRAFT)
    fields = {"f:spec": {"f:template": {"f:spec": pod}}}
    live["metadata"]["managedFields"] = [{"manager": "flux", "operation": "Apply", "fieldsV1": fields}]
    return live


@pytest.mark.parametrize("volume", [True, False])
@pytest.mark.parametrize("mount", [True, False])
def test_an_owner_who_applies_no_certificate_does_not_render_what_is_needed(*, volume: bool, mount: bool) -> None:
    """It is the operator's own field then, and a StatefulSet that its owner makes anew has none."""
    needed = hand_over.required(spec(), ISSUED, "kafka")
    assert hand_over.owner_renders(needed, owned(volume=volume, mount=mount)) is (volume and mount)
