from __future__ import annotations

import pytest

from kraftbridge.services.observe.survey import whole, wholes


@pytest.mark.parametrize(
    ("text", "value"),
    [("1000m", 1), ("1.5", 2), ("2Gi", 2**31), ("128M", 128 * 10**6), ("1e3", 1000), ("12E", 12 * 10**18), (4, 4), ("0", 0),
     ("250u", 1), ("5Ki", 5120), ("1.5Ei", 3 * 2**59)],
)  # fmt: skip
def test_quantities_are_exact_and_rounded_up(text: object, value: int) -> None:
    assert whole("memory", text) == value


@pytest.mark.parametrize("text", ["", "Gi", "1GiB", "x", "1KI", "--1"])
def test_text_that_is_not_a_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        whole("memory", text)


def test_units_by_resource() -> None:
    assert wholes({"cpu": "1.5", "requests.cpu": "250m", "memory": "1Ki", "pods": "3"}) == {
        "cpu": 1500,
        "requests.cpu": 250,
        "memory": 1024,
        "pods": 3,
    }
    assert whole("cpu", "0.0001") == 1, "rounded up"
    assert wholes(None) == {}
