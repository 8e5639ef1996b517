from __future__ import annotations

from fractions import Fraction

import pytest

from kraftbridge.models.quantities import quantity, shown, whole, wholes


@pytest.mark.parametrize(
    ("text", "value"),
    [("100m", Fraction(1, 10)), ("1.5", Fraction(3, 2)), ("2Gi", 2**31), ("128M", 128 * 10**6), ("1e3", 1000), ("12E", 12 * 10**18),
     (4, 4), ("0", 0), ("250u", Fraction(1, 4000)), ("5Ki", 5120)],
)  # fmt: skip
def test_quantities_are_exact(text: object, value: Fraction) -> None:
    assert quantity(text) == value


@pytest.mark.parametrize("text", ["", "Gi", "1GiB", "1 Gi", "x", "1KI", "--1"])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        quantity(text)


def test_units_by_resource() -> None:
    assert wholes({"cpu": "1.5", "requests.cpu": "250m", "memory": "1Ki", "pods": "3"}) == {
        "cpu": 1500,
        "requests.cpu": 250,
        "memory": 1024,
        "pods": 3,
    }
    assert whole("cpu", "0.0001") == 1, "rounded up"
    assert wholes(None) == {}


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [("cpu", 500, "500m"), ("limits.cpu", 2000, "2"), ("requests.memory", 2**31, "2Gi"), ("memory", 1000, "1000"), ("pods", 3, "3")],
)  # fmt: skip
def test_amounts_are_shown_as_people_write_them(resource: str, amount: int, text: str) -> None:
    assert shown(resource, amount) == text
