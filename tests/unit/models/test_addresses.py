"""What a tenant writes into a spec is bounded where the operator does work for each part of it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from tests.support.observations import spec_document

from kraftbridge.models.spec import MigrationSpec

MOST = 64


@pytest.mark.parametrize(("section", "field"), [("brokers", "bootstrapServers"), ("zookeeper", "connect")])
def test_the_operator_looks_up_a_bounded_number_of_addresses(section: str, field: str) -> None:
    document = spec_document()
    addresses = [f"host-{i}:1" for i in range(MOST)]
    document[section] |= {field: ",".join(addresses)}
    MigrationSpec.model_validate(document)
    document[section] |= {field: ",".join([*addresses, "one-more:1"])}
    with pytest.raises(ValidationError, match=field):
        MigrationSpec.model_validate(document)
