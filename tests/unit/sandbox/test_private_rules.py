"""Addresses that the operator permits, some by a name of their own."""

import ipaddress

import pytest

from artangram.core.errors import BadInput
from artangram.sandbox.network import private_rule


def test_a_name_stands_for_one_place_which_its_number_does_not_reach():
    rule = private_rule("model.internal=127.0.0.1:8123")
    assert (rule.name, rule.place) == ("model.internal", ("127.0.0.1", 8123))
    assert not rule.permits(ipaddress.ip_address("127.0.0.1"), 8123)


@pytest.mark.parametrize("text", ["a=10.0.0.0/8:1", "a=10.1.2.3", "=10.1.2.3:1", "A B=10.1.2.3:1"])
def test_a_name_of_no_place_is_refused(text):
    with pytest.raises(BadInput, match="is not an address"):
        private_rule(text)
