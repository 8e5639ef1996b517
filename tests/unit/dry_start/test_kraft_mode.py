"""Static settings of each broker in KRaft mode, of which a dry start copies the first and the last pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kraftbridge.copies.kraft_mode import kraft_brokers
from kraftbridge.models.dry_start import (
    ContainerImage,
    CopyKey,
    CopyOutcome,
    DryStartReport,
    GivenSetting,
    KafkaStart,
)
from kraftbridge.models.phase import BrokerMode

ZOOKEEPER, KRAFT = BrokerMode.ZOOKEEPER, BrokerMode.KRAFT
IMAGES = (
    ContainerImage("wait", "busybox", "", "busybox", ""),
    ContainerImage("kafka", "cp-kafka:7.9", "", "cp-kafka:7.9", ""),
)


def copy(ordinal: int, mode: BrokerMode, **settings: str | None) -> CopyOutcome:
    """Return a copy; its own name is in its settings, as where a shell asks for the host name."""
    own = f"copy-{ordinal}-{mode.lower()}"
    given = {name.replace("__", "."): GivenSetting(value) for name, value in settings.items()}
    given["advertised.listeners"] = GivenSetting(f"PLAINTEXT://{own}:9092")
    return CopyOutcome(
        CopyKey("kafka", ordinal, mode), 100 + ordinal, KafkaStart(valid=True, settings=given),
        aliases={own: f"kafka-{ordinal}"}, images=IMAGES,
    )  # fmt: skip


def present(ordinal: int) -> CopyOutcome:
    return copy(
        ordinal, ZOOKEEPER, broker__id=str(100 + ordinal), zookeeper__connect="zk", num__io__threads=str(2 + ordinal)
    )


def in_kraft(ordinal: int) -> CopyOutcome:
    return copy(ordinal, KRAFT, node__id=str(100 + ordinal), process__roles="broker", num__io__threads=str(2 + ordinal))


def settings_of(*copies: CopyOutcome) -> dict[int, Mapping[str, str]]:
    return {each.broker: each.settings for each in kraft_brokers(DryStartReport("x", copies), "kafka")}


ALL = (*map(present, range(3)), in_kraft(0), in_kraft(2))


def test_a_broker_between_changes_as_the_first_one_does_and_keeps_what_is_its_own() -> None:
    found = settings_of(*ALL)
    assert found[100] == {
        "advertised.listeners": "PLAINTEXT://kafka-0:9092",
        "node.id": "100",
        "num.io.threads": "2",
        "process.roles": "broker",
    }
    assert found[101] == {
        "advertised.listeners": "PLAINTEXT://kafka-1:9092",
        "node.id": "100",  # the rehearsal gives each its own
        "num.io.threads": "3",
        "process.roles": "broker",
    }
    assert found[102]["num.io.threads"] == "4"
    assert {each.image for each in kraft_brokers(DryStartReport("x", ALL), "kafka")} == {"cp-kafka:7.9"}


def test_secrets_and_classes_of_volumes_stay_out_and_say_so() -> None:
    start = KafkaStart(
        valid=True,
        settings={
            "ssl.key.password": GivenSetting(hash="abc"),
            "confluent.license": GivenSetting("shown by mistake"),
            "principal.builder.class": GivenSetting("com.example.Builder"),
            "log.retention.ms": GivenSetting(None),
            "num.io.threads": GivenSetting("2"),
        },
        mounted_classes=("principal.builder.class",),
    )
    (found,) = kraft_brokers(
        DryStartReport("x", (replace(present(0), start=start), replace(in_kraft(0), start=start))), "kafka"
    )
    assert found.settings == {"num.io.threads": "2"}
    assert found.left_out.keys() == {"ssl.key.password", "confluent.license", "principal.builder.class"}
    assert "only the hash" in found.left_out["ssl.key.password"]
    assert "on a volume" in found.left_out["principal.builder.class"]


def test_what_no_copy_shows_is_not_rehearsed() -> None:
    invalid = replace(in_kraft(0), start=KafkaStart(valid=False))
    assert kraft_brokers(None, "kafka") == ()
    assert settings_of(*map(present, range(3)), invalid) == {}
    assert settings_of(*(replace(each, start=None) for each in ALL)) == {}
    assert settings_of(*(replace(each, images=()) for each in ALL)) == {}
    assert settings_of(*(replace(each, broker_id=-1) for each in ALL)) == {}
    of_another = replace(in_kraft(0), key=CopyKey("other", 0, KRAFT))
    assert settings_of(present(0), of_another) == {}
    assert settings_of(*map(present, range(3)), invalid, in_kraft(2)).keys() == {100, 101, 102}
