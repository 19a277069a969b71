"""What is kept of what the model said."""

from msgspec import structs
from rollout_builders import a_group, a_trajectory

from artangram.core.rollout.trajectory import Segment, VersionSpan
from artangram.models.vocabulary import Vocabulary
from artangram.pipeline.transcripts import Transcripts, read

WORDS = Vocabulary(["north", "up"])


def attempt(name, reward):
    given = Segment(token_ids=WORDS.encode("north"))
    said = WORDS.encode("north up")
    spans = (VersionSpan(0, 0, len(said)),)
    sampled = Segment(token_ids=said, logprobs=(0.0,) * len(said), spans=spans)
    one = a_trajectory(id=name, reward=reward)
    return structs.replace(one, segments=(given, sampled), branches=((given, sampled),))


def test_the_best_and_the_worst_of_a_step_are_kept_as_text(tmp_path):
    kept = Transcripts(tmp_path, WORDS, most=2)
    group = a_group(attempt("a", 0.5), attempt("b", 1.0), attempt("c", 0.0))
    for step in (1, 2):
        kept.add(step, [group])
    found = read(kept.path)
    assert [(one.step, one.trajectory) for one in found] == [
        *((1, "b"), (1, "c")),
        *((2, "b"), (2, "c")),
    ]
    spoken = [(part.is_sampled, part.text) for part in found[0].conversations[1]]
    assert spoken == [(False, "north"), (True, "north up")]
    # What a crash has cut short costs the last step at most.
    kept.path.write_bytes(kept.path.read_bytes()[:-9])
    assert [one.step for one in read(kept.path)][:2] == [1, 1]


def test_nothing_is_kept_where_nothing_is_wanted(tmp_path):
    kept = Transcripts(tmp_path, WORDS, most=0)
    kept.add(1, [a_group(attempt("a", 1.0))])
    assert read(kept.path) == []
