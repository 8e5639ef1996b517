"""The page of a rehearsal shows what its brokers compared, and what had to be replaced. No value is taken for markup."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from kraftbridge.models.rehearsal import (
    BrokerRehearsal,
    ComparedSetting,
    Ending,
    Judgement,
    RehearsalResult,
    RehearsalVerdict,
)
from kraftbridge.rehearsal.page import render_page

NOW = datetime(2026, 11, 26, tzinfo=UTC)


def rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the tables below a heading, up to the next one."""
    part = page.partition(f"<h2>{heading}</h2>")[2].partition("<h2>")[0]
    cells = (re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row) for row in re.findall(r"<tr>(.*?)</tr>", part))
    return [[re.sub(r"<[^>]+>", "", cell) for cell in row] for row in cells]


def test_the_page_shows_each_compared_setting_those_that_are_lost_first_and_what_was_replaced() -> None:
    broker = BrokerRehearsal(
        broker=0,
        alike=[2],
        verdict=RehearsalVerdict.FAILS,
        reason="not in force in KRaft mode: num.io.threads",
        compared=[
            ComparedSetting(name="log.cleaner.backoff.ms", stored="20000", holds="20000", held=True),
            ComparedSetting(name="log.retention.ms", stored="-1", held=False),
            ComparedSetting(name="num.io.threads", stored="8<b>", holds="2", held=False),
            ComparedSetting(name="ssl.key.password", held=True),
        ],
        words=["ERROR Per-broker configs of 0 could not be applied"],
        replaced_settings={"ssl.keystore.location": "no store of keys is here"},
    )
    page = render_page(
        RehearsalResult(
            verdict=RehearsalVerdict.FAILS,
            reason="broker 0: no",
            controllers=Judgement(verdict=RehearsalVerdict.WORKS, reason="its log holds all 5 entities"),
            brokers=[broker],
            ending=Ending.DUAL_WRITE,
            started_at=NOW,
            finished_at=NOW,
        )
    )
    assert rows(page, "Broker 0, 2 in KRaft mode: Fails") == [
        ["dynamic setting", "stored", "in force in KRaft mode", ""],
        ["log.retention.ms", "-1", "", "lost"],
        ["num.io.threads", "8&lt;b&gt;", "2", "lost"],
        ["log.cleaner.backoff.ms", "20000", "20000", ""],
        ["ssl.key.password", "a secret", "", ""],
        ["setting", "why"],
        ["ssl.keystore.location", "no store of keys is here"],
    ]
    assert "Kafka&#39;s migration alone" in page or "Kafka's migration alone" in page
    assert "Works: its log holds all 5 entities" in page
    assert "could not be applied" in page
