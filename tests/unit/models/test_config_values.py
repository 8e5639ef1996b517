"""Values of settings by their type: every spelling of a value is the same, two values never are."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kraftbridge.models.config_values import ConfigType, canonical_value, canonical_values, same_value

BLANKS = st.text(" \t\n\r\v\f\0", max_size=3)
WHOLE = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
ELEMENTS = st.lists(st.text("abc.:-*_", min_size=1, max_size=5), max_size=4)
KINDS = st.sampled_from(ConfigType)
TEXTS = st.one_of(
    st.text(max_size=12),
    st.from_regex(r"\A[ ]?[+-]?[0-9.]{1,8}([eEpP][+-]?[0-9]{1,3})?[fd]?\Z"),
    st.sampled_from(["TRUE", "false", "inf", "nan", "Infinity", "-Infinity", "NaN", "1_0", "0x1p3", "a , b", "١٢"]),
)


@pytest.mark.parametrize(
    ("kind", "written", "shown"),
    [
        (ConfigType.BOOLEAN, "False", "false"),
        (ConfigType.BOOLEAN, " TRUE\n", "true"),
        (ConfigType.LIST, "compact, delete", "compact,delete"),
        (ConfigType.LIST, " ", ""),
        (ConfigType.LIST, "0:1 ,, 1:2", "0:1,,1:2"),
        (ConfigType.DOUBLE, "0.50", "0.5"),
        (ConfigType.DOUBLE, "1", "1.0"),
        (ConfigType.DOUBLE, "10485760", "1.048576E7"),
        (ConfigType.DOUBLE, "9999999", "9999999.0"),
        (ConfigType.DOUBLE, "0.001", "0.001"),
        (ConfigType.DOUBLE, ".0001d", "1.0E-4"),
        (ConfigType.DOUBLE, "1.7976931348623157e308", "1.7976931348623157E308"),
        (ConfigType.DOUBLE, "4.9e-324", "4.9E-324"),
        (ConfigType.DOUBLE, "0x1.8p1", "3.0"),
        (ConfigType.DOUBLE, "1e999", "Infinity"),
        (ConfigType.DOUBLE, "0x1p99999", "Infinity"),
        (ConfigType.DOUBLE, "-0", "-0.0"),
        (ConfigType.LONG, "+007", "7"),
        (ConfigType.LONG, "-0", "0"),
        (ConfigType.LONG, "٣", "3"),
        (ConfigType.STRING, " lz4 ", "lz4"),
        (ConfigType.CLASS, "a.B\t", "a.B"),
        (ConfigType.PASSWORD, "p ", "p"),
    ],
)
def test_a_value_is_shown_as_kafka_shows_it(kind: ConfigType, written: str, shown: str) -> None:
    assert canonical_value(kind, written) == shown
    assert same_value(kind, written, shown)


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (ConfigType.BOOLEAN, "true", "false"),
        (ConfigType.BOOLEAN, "yes", "true"),
        (ConfigType.LIST, "compact,delete", "delete,compact"),
        (ConfigType.LIST, "compact delete", "compact,delete"),
        (ConfigType.DOUBLE, "0.5", "0.5000000000000001"),
        (ConfigType.DOUBLE, "inf", "Infinity"),
        (ConfigType.DOUBLE, "1_0", "10"),
        (ConfigType.INT, "2147483648", "02147483648"),
        (ConfigType.INT, "5", "5.0"),
        (ConfigType.STRING, "LZ4", "lz4"),
        (ConfigType.UNKNOWN, "1", "1 "),
    ],
)
def test_another_value_or_one_that_kafka_refuses_is_another_text(kind: ConfigType, one: str, other: str) -> None:
    assert not same_value(kind, one, other)


def test_a_type_of_a_later_kafka_is_compared_as_text() -> None:
    assert ConfigType(99) is ConfigType.UNKNOWN
    assert canonical_values({"a": ConfigType.LIST}, {"a": "x , y", "b": "x , y", "c": None}) == {
        "a": "x,y",
        "b": "x , y",
        "c": None,
    }


@given(st.sampled_from(sorted(WHOLE)), st.data(), BLANKS, BLANKS, st.integers(0, 4))
def test_whole_numbers_are_compared_by_value(kind, data, before, after, zeros):
    limit = 2 ** (WHOLE[kind] - 1)
    one, other = (data.draw(st.integers(-limit, limit - 1)) for _ in range(2))
    spelled = f"{before}{'-' if one < 0 else '+'}{'0' * zeros}{abs(one)}{after}"
    assert same_value(kind, spelled, str(one))
    assert same_value(kind, spelled, str(other)) is (one == other)


@given(st.floats(), st.floats(), BLANKS, st.sampled_from(["", "d", "F"]))
@example(2.0**-24, 0.0, "", "")  # its last digit is a tie
def test_doubles_are_compared_by_value(one, other, blanks, suffix):
    shown = canonical_value(ConfigType.DOUBLE, "NaN" if math.isnan(one) else _spelled(one))
    if math.isfinite(one):
        assert float(shown) == one
        assert same_value(ConfigType.DOUBLE, f"{blanks}{one:.20e}{suffix}", shown)
        assert ("E" in shown) is not (one == 0 or 1e-3 <= abs(one) < 1e7)
    assert same_value(ConfigType.DOUBLE, shown, _spelled(other)) is (repr(one) == repr(other))


def _spelled(value: float) -> str:
    return repr(value).replace("inf", "Infinity").replace("nan", "NaN")


@given(ELEMENTS, ELEMENTS, BLANKS.map(lambda blanks: blanks.replace("\0", "")))
def test_lists_are_compared_by_their_elements_in_order(one, other, blanks):
    assert same_value(ConfigType.LIST, f"{blanks},".join(one) + blanks, ",".join(one))
    same = same_value(ConfigType.LIST, f",{blanks}".join(one), ",".join(other))
    assert same is (one == other)


@given(st.booleans(), st.booleans(), st.booleans(), BLANKS)
def test_booleans_are_compared_in_any_case(one, other, upper, blanks):
    spelled = f"{blanks}{str(one).upper() if upper else one}{blanks}"
    assert same_value(ConfigType.BOOLEAN, spelled, str(other).lower()) is (one is other)


@given(KINDS, TEXTS, TEXTS)
def test_sameness_is_an_equivalence_and_kafkas_own_spelling_stays(kind, one, other):
    shown = canonical_value(kind, one)
    assert canonical_value(kind, shown) == shown
    assert same_value(kind, one, shown)
    assert same_value(kind, one, other) is same_value(kind, other, one) is (shown == canonical_value(kind, other))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("blank", [" ", "\n", "\t"])
def test_a_long_run_of_blanks_in_a_list_takes_no_square_of_its_length(blank: str) -> None:
    """A broker may answer a megabyte of them, and every migration's thread would wait."""
    value = f"one{blank * 1_000_000}two,{blank * 10}three"
    assert canonical_value(ConfigType.LIST, value) == f"one{blank * 1_000_000}two,three"
