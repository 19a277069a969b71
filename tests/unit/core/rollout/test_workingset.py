"""Sessions begin as long as replicas can keep them; what is booked is given back."""

from artangram.core.rollout.affinity import Auto, Router, affinity_of
from artangram.core.rollout.costs import Candidate, Rates, RoutedRequest, Speeds, TokenWork
from artangram.core.rollout.workingset import FEW_TURNS, GROWTH, OCCUPIED, WorkingSets

BUSY = FEW_TURNS
BOOKED = OCCUPIED * GROWTH * 100
"""Of a session of a new task that begins with 100 tokens."""


def a_request(session: str, *, task: str = "lake", prompt: int = 100) -> RoutedRequest:
    return RoutedRequest(task=task, prompt_tokens=prompt, most_tokens=1000, session=session)


def a_replica(name: str, *, turns: int = BUSY, hardware: str = "gpu") -> Candidate:
    outstanding = TokenWork(0.0, 0.0)
    return Candidate(name=name, hardware=hardware, outstanding=outstanding, turns=turns)


def rates(cache_tokens: float) -> Rates:
    return Rates(prefill_per_s=1000, decode_per_s=50, cache_tokens=cache_tokens)


def some_sets(cache_tokens: float = 1.5 * BOOKED) -> WorkingSets:
    return WorkingSets(Speeds({"gpu": rates(cache_tokens)}))


def test_a_session_begins_when_what_it_will_become_fits_beside_the_others():
    sets, one = some_sets(), a_replica("a")
    assert sets.may_begin(a_request("first"), [one])
    sets.place(a_request("first"), "a")
    assert not sets.may_begin(a_request("second"), [one])
    assert sets.may_begin(a_request("second"), [one, a_replica("b")])
    sets.end("first")
    assert sets.may_begin(a_request("second"), [one])


def test_a_replica_that_is_nearly_idle_takes_a_session_without_room():
    sets = some_sets()
    sets.place(a_request("first"), "a")
    assert sets.may_begin(a_request("second"), [a_replica("a", turns=FEW_TURNS - 1)])


def test_without_a_known_size_there_is_always_room():
    sets = WorkingSets(Speeds())
    for number in range(100):
        sets.place(a_request(f"{number}", prompt=10_000), "a")
    assert sets.may_begin(a_request("next", prompt=10_000), [a_replica("a")])


def test_a_session_is_expected_to_become_what_those_before_it_were():
    sets, one = some_sets(cache_tokens=1000), a_replica("a")
    sets.place(a_request("first"), "a")
    sets.place(a_request("first", prompt=900), "a")
    sets.end("first")
    sets.place(a_request("second"), "a")  # 675 of the 1000 tokens.
    assert not sets.may_begin(a_request("third"), [one])
    assert sets.may_begin(a_request("short", task="math", prompt=40), [one])


def test_a_session_that_grows_beyond_what_was_booked_takes_more():
    sets, one = some_sets(cache_tokens=2.5 * BOOKED), a_replica("a")
    sets.place(a_request("first"), "a")
    sets.place(a_request("first", prompt=200), "a")
    assert sets.may_begin(a_request("second"), [one])
    sets.place(a_request("first", prompt=int(2 * BOOKED)), "a")
    assert not sets.may_begin(a_request("second"), [one])


def test_a_session_stays_open_to_its_own_replica_and_moves_only_where_there_is_room():
    sets = some_sets()
    a, b = a_replica("a"), a_replica("b")
    sets.place(a_request("first"), "a")
    assert [one.name for one in sets.open_to(a_request("first"), [a, b])] == ["a", "b"]
    assert [one.name for one in sets.open_to(a_request("second"), [a, b])] == ["b"]
    sets.place(a_request("second"), "b")
    assert [one.name for one in sets.open_to(a_request("first"), [a, b])] == ["a"]
    assert [one.name for one in sets.open_to(a_request("third"), [a, b])] == ["a", "b"]
    sets.place(a_request("second"), "a")
    assert sets.may_begin(a_request("third"), [b])


def test_a_lost_replica_keeps_nothing_and_a_request_without_a_session_books_nothing():
    sets, one = some_sets(), a_replica("a")
    sets.place(a_request("first"), "a")
    sets.place(a_request("second"), "b")
    sets.lost("a")
    sets.place(a_request(""), "a")
    assert sets.may_begin(a_request("third"), [one])
    assert not sets.may_begin(a_request("third"), [a_replica("b")])
    sets.end("first")
    sets.end("unknown")


def test_only_learned_affinity_paces_and_it_says_where_a_session_went_for_lack_of_room():
    told = {"a": rates(1.5 * BOOKED), "b": rates(1.5 * BOOKED)}
    both = [a_replica("a", hardware="a"), a_replica("b", hardware="b")]
    router = Router(Auto(), rates=told)
    taken = [router.choose(a_request(name), both) for name in ("first", "second")]
    assert {one.replica for one in taken if one is not None} == {"a", "b"}
    assert not router.may_begin(a_request("third"), both)
    assert router.may_begin(a_request("third"), [])
    router.ended("first")
    assert router.may_begin(a_request("third"), both)
    for affinity in (affinity_of({"lake": "a"}), Auto(paces=False)):
        free = Router(affinity, rates=told)
        for number in range(9):
            free.choose(a_request(f"{number}"), both)
        assert free.may_begin(a_request("next"), both)
