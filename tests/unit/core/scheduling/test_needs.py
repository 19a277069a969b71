"""What is refused at the border, in which words, and how amounts and speed-ups are read."""

import math

import pytest
from builders import an_action

from artangram.core.errors import BadInput
from artangram.core.ids import Resource
from artangram.core.scheduling.action import checked
from artangram.core.scheduling.needs import parse_needs
from artangram.core.scheduling.speedup import MOST_UNITS, Amdahl, Power, Table, parse_speedup


def complaint(raw: object, **fields: object) -> str:
    with pytest.raises(BadInput) as caught:
        parse_needs(raw, **fields)
    return str(caught.value)


class TestNeeds:
    def test_amounts_are_read_in_all_three_forms(self):
        needs = parse_needs({"cpu": {"min": 2, "max": 4}, "gpu": {"choices": [4, 1, 4]}, "api": 3})
        assert needs.of(Resource("cpu")) == (2, 3, 4)
        assert needs.of(Resource("gpu")) == (1, 4)
        assert needs.of(Resource("api")) == (3,)
        assert needs.of(Resource("disk")) == ()

    def test_elastic_needs_keep_their_speedup_and_service(self):
        needs = parse_needs({"gpu": 1}, elastic="gpu", speedup={"power": 0.5}, service="judge")
        assert (needs.elastic, needs.speedup, needs.service) == ("gpu", Power(0.5), "judge")

    @pytest.mark.parametrize("raw", [None, {}, 3, ["cpu"]])
    def test_something_else_is_refused_with_an_example(self, raw):
        said = complaint(raw)
        assert said.startswith(f"needs: {raw!r} is not a set of needs; map resources to amounts")

    @pytest.mark.parametrize(
        ("raw", "said"),
        [
            (0, "needs.cpu: 0 is out of range; give 1 to 1048576"),
            (-1, "needs.cpu: -1 is out of range; give 1 to 1048576"),
            (MOST_UNITS + 1, "needs.cpu: 1048577 is out of range; give 1 to 1048576"),
            (1.5, "needs.cpu: 1.5 is not a whole number; amounts are whole units"),
            (True, "needs.cpu: True is not a whole number; amounts are whole units"),
            ({"min": 4, "max": 2}, "needs.cpu: min 4 is above max 2; swap them"),
            ({"min": 1, "max": 1 << 20}, "needs.cpu: 1048576 amounts are too many to weigh"),
            (
                {"choices": [1] * (1 << 15)},
                "needs.cpu: 32768 amounts are too many to weigh; name 16384",
            ),
            ({"min": 0, "max": 2}, "needs.cpu.min: 0 is out of range; give 1 to 1048576"),
            ({"choices": [1, "x"]}, "needs.cpu.choices: 'x' is not a whole number; amounts are"),
            ({"min": 1}, "needs.cpu: {'min': 1} is not an amount; give a whole number"),
            ({"choices": []}, "needs.cpu: {'choices': []} is not an amount; give a whole number"),
            ({"choices": 3}, "needs.cpu: {'choices': 3} is not an amount; give a whole number"),
        ],
    )
    def test_a_bad_amount_names_the_field_and_the_fix(self, raw, said):
        assert complaint({"cpu": raw}).startswith(said)

    def test_the_elastic_resource_is_one_of_the_needs(self):
        said = complaint({"cpu": 1}, elastic="gpu")
        assert said == "elastic: 'gpu' is not among the needs; name one of the needs"

    def test_a_speedup_needs_an_elastic_resource(self):
        said = complaint({"cpu": 1}, speedup={"power": 1})
        assert said == 'speedup: given without an elastic resource; add "elastic": "cpu"'

    def test_a_service_is_a_name(self):
        said = complaint({"gpu": 1}, service=3)
        assert said == "service: 3 is not a name; give the service's name"


class TestSpeedup:
    def test_amdahl_never_passes_its_serial_share(self):
        curve = parse_speedup({"amdahl": 0.5})
        assert curve == Amdahl(0.5)
        assert [curve.speed(1), curve.speed(2)] == [1.0, pytest.approx(4 / 3)]
        assert curve.speed(10**9) == pytest.approx(2.0)

    def test_power_grows_as_a_power(self):
        assert parse_speedup({"power": 0.5}).speed(16) == 4.0

    def test_a_table_is_interpolated_and_flat_outside(self):
        curve = parse_speedup({"table": {"8": 3.0, "2": 1.0, "4": 2.0}})
        assert curve == Table(((2, 1.0), (4, 2.0), (8, 3.0)))
        assert [curve.speed(n) for n in (1, 2, 3, 4, 6, 8, 99)] == [1, 1, 1.5, 2, 2.5, 3, 3]

    @pytest.mark.parametrize(
        ("raw", "said"),
        [
            (3, "speedup: 3 is not one speed-up; write one of"),
            ({}, "speedup: {} is not one speed-up; write one of"),
            ({"amdahl": 0, "power": 1}, "speedup: {'amdahl': 0, 'power': 1} is not one speed-up"),
            ({"linear": 1}, "speedup: unknown form 'linear'; write one of"),
            ({"amdahl": 2}, "speedup.amdahl: 2 is not between 0 and 1; give a number from 0 to 1"),
            ({"power": "x"}, "speedup.power: 'x' is not between 0 and 1; give a number"),
            ({"power": True}, "speedup.power: True is not between 0 and 1; give a number"),
            ({"table": {}}, "speedup.table: {} is not a table; map numbers of units to speeds"),
            ({"table": [1]}, "speedup.table: [1] is not a table; map numbers of units to speeds"),
            ({"table": {"0": 1}}, "speedup.table: '0': 1 is not units: speed; map numbers"),
            ({"table": {"x": 1}}, "speedup.table: 'x': 1 is not units: speed; map numbers"),
            ({"table": {"9" * 5000: 1}}, "speedup.table: '99999999999999999999': 1 is not units"),
            ({"table": {"1048577": 1}}, "speedup.table: '1048577': 1 is not units: speed; map"),
            ({"table": {"02": 1}}, "speedup.table: '02': 1 is not units: speed; map numbers"),
            ({"table": {"1": 0}}, "speedup.table: '1': 0 is not units: speed; map numbers"),
            ({"table": {"1": True}}, "speedup.table: '1': True is not units: speed; map numbers"),
        ],
    )
    def test_a_bad_speedup_names_the_field_and_the_fix(self, raw, said):
        with pytest.raises(BadInput) as caught:
            parse_speedup(raw)
        assert str(caught.value).startswith(said)


class TestActions:
    @pytest.mark.parametrize(
        ("field", "value", "said"),
        [
            ("id", "", "id: is empty; give every action a unique id"),
            ("kind", "", "kind: is empty; name the kind of action, as in swe/test"),
            ("work_s", -1.0, "work_s: -1.0 is not a time; give a number of seconds, 0 or more"),
            ("timeout_s", math.nan, "timeout_s: nan is not a time; give a number of seconds"),
            ("deadline_at", math.inf, "deadline_at: inf is not a time; give a number of seconds"),
        ],
    )
    def test_values_no_scheduler_could_honour_are_refused(self, field, value, said):
        fields = {"name": "a"} | ({"name": value} if field == "id" else {field: value})
        with pytest.raises(BadInput) as caught:
            checked(an_action(**fields))
        assert str(caught.value).startswith(said)

    def test_a_sound_action_is_handed_on(self):
        action = an_action("a", work_s=0.0, timeout_s=1.0, deadline_at=2.0)
        assert checked(action) is action

    def test_a_complaint_can_be_seen_from_outside(self):
        error = BadInput("needs.cpu", "is odd", "mend it").within("turns[3]")
        assert str(error) == "turns[3].needs.cpu: is odd; mend it"
        assert (error.field, error.problem, error.fix) == (
            "turns[3].needs.cpu",
            "is odd",
            "mend it",
        )
