"""No text recommends an order of upgrades that Kafka refuses, or that stalls its clients.

Measured: a broker of 3.9 without a pinned ``inter.broker.protocol.version`` sends Fetch 17, which leaders of 2.8 refuse. 18 of 18 partitions
were under-replicated and producers waited for 94 s. With the pin nothing stalled from 2.4, 2.8 and 3.6. Controllers of Kafka 4 start before
its brokers, features are raised when every node runs it, and ``kraft.version`` is 1 before ``controller.quorum.bootstrap.servers`` (KAFKA-16538).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftbridge.models.catalogue import Code

ROOT = Path(__file__).resolve().parents[2]
SECTION = "Bring the brokers to Kafka 3.9"
TEXTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.*")),
    ROOT / "helm/kraftbridge/templates/NOTES.txt",
    ROOT / "helm/kraftbridge/values.yaml",
]
_PROTOCOL = r"(?:inter\.broker\.protocol\.version|INTER_BROKER_PROTOCOL_VERSION|\bIBP\b)"
_TO_BRIDGE = re.compile(r"\b(?:roll|upgrade|update|bring|move|start)\b(?:(?!\. ).)*?\b3\.9\b(?!-IV)", re.IGNORECASE)
_LIFT = re.compile(
    rf"\b(?:set|remove|raise|lift|must be)\b(?:(?!\. ).)*?{_PROTOCOL}|{_PROTOCOL}(?:(?!\. ).)*?\bmust be\b",
    re.IGNORECASE,
)
_PINNED = re.compile(rf"{_PROTOCOL}\W+(?:set|pinned) to the version that runs now|first \[?{SECTION}", re.IGNORECASE)
_WHEN_ALL = re.compile(r"when every broker runs (?:Kafka )?3\.9", re.IGNORECASE)
_ON_KRAFT = re.compile(r"KRaft brokers|Kafka 4")
_AT_ONCE = re.compile(
    rf"(?:{_PROTOCOL}|\b3\.9\b)(?:(?!\. ).)*?\bin (?:one|the same|a single) (?:rolling )?(?:restart|roll)\b",
    re.IGNORECASE,
)
_BY_THE_OPERATOR = re.compile(
    r"spec\.brokers\.upgrade|upgrade: image:|UpgradingBrokers|the operator (?:takes|restarts)", re.IGNORECASE
)
"""Words of the leg in which the operator itself pins the protocol, and lifts it once every broker runs 3.9."""
_NOT_ADVICE = re.compile(
    r"\bcannot (?:up|down)grade|is not 3\.9|starts a real Kafka|start its own|--release-version", re.IGNORECASE
)


def wrong(text: str) -> list[str]:
    """Return what is wrong with the advice of one paragraph, list item, table row or finding."""
    text = " ".join(text.replace("`", "").split())
    if _NOT_ADVICE.search(text):
        return []
    found = []
    if _AT_ONCE.search(text):
        found.append("the release and the protocol version in one restart")
    if _BY_THE_OPERATOR.search(text):
        return found
    if _TO_BRIDGE.search(text) and not _PINNED.search(text) and not _WHEN_ALL.search(text):
        found.append("3.9 without the pin")
    if _LIFT.search(text) and not (_PINNED.search(text) or _WHEN_ALL.search(text) or _ON_KRAFT.search(text)):
        found.append("the protocol version before every broker runs 3.9")
    return found


def units(path: Path) -> Iterator[str]:
    """Yield paragraphs, list items and table rows."""
    units_and_headings = re.split(r"\n\s*\n|\n(?=\s*(?:[-*#|]|\d+\.)\s?)", path.read_text(encoding="utf-8"))
    yield from (unit for unit in units_and_headings if not unit.lstrip().startswith("#"))


@pytest.mark.parametrize(
    "text",
    [
        "Upgrade the brokers to Kafka 3.9, and set inter.broker.protocol.version=3.9 or remove the setting, in one rolling restart",
        "Roll the brokers to an image with Kafka 3.9 first. Ignore this finding if the image contains 3.9 in spite of its name",
        "Roll every broker to Kafka 3.9. If you set `KAFKA_INTER_BROKER_PROTOCOL_VERSION`, it must be 3.9.",
        "Set inter.broker.protocol.version to 2.8 or later, then delete /controller.",
        "Start 3.9 and IBP 3.9 in the same roll",
    ],
)
def test_the_wrong_advice_of_former_releases_is_recognized(text: str) -> None:
    assert wrong(text)


@pytest.mark.parametrize("code", list(Code), ids=str)
def test_no_finding_recommends_an_order_that_kafka_refuses(code: Code) -> None:
    assert wrong(code.fix) == wrong(code.meaning) == []


def test_no_document_recommends_an_order_that_kafka_refuses() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {unit[:120]}": w for path in TEXTS for unit in units(path) if (w := wrong(unit))
    }
    assert found == {}


def test_the_guide_pins_first_and_lifts_when_every_broker_runs_the_bridge() -> None:
    guide = section("install.md", SECTION)
    first, second = (re.search(rf"^{number}\. (.+)$", guide, re.MULTILINE) for number in (1, 2))
    assert first is not None
    assert second is not None
    assert _PINNED.search(first[1].replace("`", ""))
    assert _WHEN_ALL.search(second[1])


@pytest.mark.parametrize(
    ("heading", "order"),
    [
        (
            "Upgrade to Kafka 4",
            [
                "the controllers one at a time",
                "then the brokers",
                "When every node runs Kafka 4",
                "feature metadata.version",
            ],
        ),
        (
            "Dynamic quorum (KIP-853)",
            ["all nodes to Kafka 4.1", "kraft.version=1", "controller.quorum.bootstrap.servers"],
        ),
    ],
)
def test_the_steps_after_the_migration_are_in_kafkas_order(heading: str, order: list[str]) -> None:
    guide = section("kraft.md", heading)
    places = [guide.index(step) for step in order]
    assert places == sorted(places)


def section(document: str, heading: str) -> str:
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
