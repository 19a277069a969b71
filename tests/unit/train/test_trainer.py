"""The trainer on attempts sampled by a real, tiny model."""

from math import log

import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

import msgspec  # noqa: E402 - only where torch is there
from msgspec import structs  # noqa: E402

from artangram.core.errors import BadInput  # noqa: E402
from artangram.core.rollout.trajectory import Segment, TrajectoryStatus  # noqa: E402
from artangram.train.lossrules import LossParts, Mean, Overlong  # noqa: E402
from artangram.train.settings import TrainSettings  # noqa: E402
from artangram.train.tally import StepMetrics  # noqa: E402
from artangram.train.trainer import Trainer  # noqa: E402
from unit.train.attempts import a_group, a_model, even  # noqa: E402

SETTINGS = TrainSettings(min_samples=4, lr=5e-3, entropy=0.0)


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def weights(trainer):
    return torch.cat([p.detach().flatten().clone() for p in trainer.model.parameters()])


def test_fresh_tokens_have_a_ratio_of_one():
    trainer = Trainer(a_model(), SETTINGS)
    report = trainer.step([a_group(trainer.model, reward=even)])
    assert report.fresh_error < 1e-5
    assert report.stale_share == 0
    assert (report.version, trainer.version) == (1, 1)


def test_a_wrong_logprob_shows_as_an_error_of_the_ratio():
    trainer = Trainer(a_model(), SETTINGS)
    other = a_model(seed=1)
    assert trainer.step([a_group(other, reward=even)]).fresh_error > 1e-3


def test_stale_tokens_are_counted_and_weighed():
    trainer = Trainer(a_model(), SETTINGS)
    trainer.version = 2
    report = trainer.step([a_group(a_model(seed=1), reward=even, version=1)])
    assert report.stale_share == 1
    assert report.max_staleness == 1
    assert report.stale_ratio != pytest.approx(1.0, abs=1e-4)


def test_rewarded_tokens_become_likelier():
    trainer = Trainer(a_model(), SETTINGS)
    rewards = []
    for step in range(12):
        groups = [
            a_group(trainer.model, reward=even, version=step, seed=1000 * step + 100 * g)
            for g in range(2)
        ]
        rewards.append(trainer.step(groups).reward)
    assert sum(rewards[-3:]) > sum(rewards[:3]) + 0.6


def test_equal_rewards_teach_nothing_and_leave_the_version():
    trainer = Trainer(a_model(), SETTINGS)
    before = weights(trainer)
    report = trainer.step([a_group(trainer.model, reward=lambda tokens: 1.0)])
    assert report.is_skipped
    assert trainer.version == 0
    assert torch.equal(before, weights(trainer))


@pytest.mark.parametrize(("loss", "kl"), [("grpo", 0.1), ("ppo", 0.0), ("reinforce++", 0.1)])
def test_micro_batches_make_the_same_step_as_one_batch(loss, kl):
    found = []
    for max_tokens in (10_000, 30):
        settings = structs.replace(SETTINGS, loss=loss, kl=kl, max_tokens=max_tokens)
        trainer = Trainer(a_model(), settings)
        groups = [a_group(trainer.model, reward=even, seed=s) for s in (0, 50)]
        trainer.step(groups)
        found.append(torch.cat([p.grad.flatten() for p in trainer.model.parameters()]))
    # Of the gradient: Adam's first step has its sign only, and zero has none.
    assert torch.allclose(found[0], found[1], atol=1e-6)
    assert found[0].abs().max() > 1e-3


def test_a_gradient_that_is_not_finite_skips_the_step_and_spares_the_weights(caplog):
    trainer = Trainer(a_model(), structs.replace(SETTINGS, loss="ppo", epochs=2))
    before = weights(trainer)
    group = a_group(trainer.model, reward=even)
    # Tokens that were hardly possible when they were sampled have a ratio that no number holds.
    report = trainer.step([with_logprobs(group, -300.0)])
    assert (report.is_skipped, report.version, trainer.version) == (True, 0, 0)
    assert torch.equal(before, weights(trainer))
    assert report.fresh_error > 1e6
    assert msgspec.json.decode(msgspec.json.encode(report), type=StepMetrics) == report
    assert "no finite gradient" in caplog.text
    assert not trainer.step([group]).is_skipped


def with_logprobs(group, logprob):
    """The same group, if the engine had found each of its tokens that likely."""

    def changed(segment):
        return structs.replace(segment, logprobs=tuple(logprob for _ in segment.logprobs))

    return structs.replace(
        group,
        trajectories=tuple(
            structs.replace(t, segments=tuple(map(changed, t.segments))) for t in group.trajectories
        ),
    )


def test_epochs_clip_against_the_weights_of_the_steps_start():
    settings = structs.replace(SETTINGS, epochs=3, clip_low=1e-6, clip_high=1e-6)
    once = Trainer(a_model(), structs.replace(settings, epochs=1))
    often = Trainer(a_model(), settings)
    for trainer in (once, often):
        trainer.step([a_group(a_model(), reward=even)])
    # After the first epoch nearly every ratio has left the clip: no gradient, Adam coasts on.
    assert often.optimiser.state_dict()["state"][0]["step"] == 3
    assert not torch.equal(weights(once), weights(often))


def test_the_rate_falls_to_a_tenth_over_its_steps():
    trainer = Trainer(a_model(), structs.replace(SETTINGS, lr=1e-3, fade_steps=2))
    rates = []
    for step in range(3):
        trainer.step([a_group(a_model(), reward=even, version=0, seed=100 * step)])
        rates.append(trainer.optimiser.param_groups[0]["lr"])
    assert rates == pytest.approx([1e-3, 5.5e-4, 1e-4])


def test_distillation_moves_towards_the_teacher():
    student, teacher = a_model(), a_model(seed=1)
    trainer = Trainer(student, structs.replace(SETTINGS, loss="distillation", lr=2e-3))

    def gap(step):
        group = a_group(student, reward=even, version=step, seed=200 * step, size=16)
        said = {str(t.id): (logprobs_of(teacher, t),) for t in group.trajectories}
        own = [p for t in group.trajectories for s in t.segments for p in s.logprobs]
        theirs = [p for rows in said.values() for p in rows[0]]
        trainer.step([group], teachers=said)
        return (sum(own) - sum(theirs)) / len(own)

    gaps = [gap(step) for step in range(15)]
    assert sum(gaps[-3:]) < 0.7 * sum(gaps[:3])


def test_distillation_without_a_teacher_is_refused():
    trainer = Trainer(a_model(), structs.replace(SETTINGS, loss="distillation"))
    with pytest.raises(BadInput, match=r"g-.* has no teacher"):
        trainer.step([a_group(trainer.model, reward=even)])


@torch.no_grad()
def logprobs_of(model, trajectory):
    from artangram.models.causal import score
    from artangram.train.samples import attempt_samples, rows_of

    rows = rows_of(attempt_samples(trajectory, 0.0), version=0)
    return tuple(score(model, rows.packed, at=rows.at).logprobs.tolist())


def test_a_restored_trainer_makes_the_same_step(tmp_path):
    first = Trainer(a_model(), SETTINGS)
    first.step([a_group(first.model, reward=even)])
    first.save(tmp_path)
    second = Trainer(a_model(seed=5), SETTINGS)
    second.restore(tmp_path)
    group = a_group(first.model, reward=even, version=1, seed=90)
    assert first.step([group]) == second.step([group])
    assert torch.equal(weights(first), weights(second))


@pytest.mark.parametrize("name", ["optimiser.pt", "trainer.json", "model.safetensors"])
@pytest.mark.parametrize("content", [b"not what was written", b""])
def test_an_unreadable_state_is_refused_and_changes_nothing(tmp_path, name, content):
    trainer = Trainer(a_model(), SETTINGS)
    trainer.save(tmp_path)
    (tmp_path / name).write_bytes(content)
    before = weights(trainer)
    with pytest.raises(BadInput, match="cannot be read"):
        trainer.restore(tmp_path)
    assert torch.equal(before, weights(trainer))


def in_two(trajectory):
    """The same attempt in two conversations: what the second took over counts as given."""
    opening, first, given, second = trajectory.segments
    shared = Segment(token_ids=opening.token_ids + first.token_ids)
    return structs.replace(
        trajectory, segments=(opening, first), branches=((shared, given, second),)
    )


@pytest.mark.parametrize("mean", list(Mean))
def test_an_attempt_in_several_conversations_teaches_what_it_would_in_one(mean):
    settings = structs.replace(SETTINGS, mean=mean, entropy=0.0)
    one, two = Trainer(a_model(), settings), Trainer(a_model(), settings)
    group = a_group(one.model, reward=even)
    parted = structs.replace(group, trajectories=tuple(map(in_two, group.trajectories)))
    reports = [one.step([group]), two.step([parted])]
    assert reports[0].samples == reports[1].samples
    assert reports[0].tokens == reports[1].tokens
    assert reports[0].loss == pytest.approx(reports[1].loss, abs=1e-6)
    assert reports[0].grad_norm == pytest.approx(reports[1].grad_norm, rel=1e-4)


def test_tokens_are_scored_at_the_temperature_that_sampled_them():
    trainer = Trainer(a_model(), SETTINGS)
    group = a_group(trainer.model, reward=even)

    @torch.no_grad()
    def cooled(trajectory):
        """As an engine gives them: every segment at a temperature of its own."""
        found = []
        for number, segment in enumerate(trajectory.segments):
            if segment.is_sampled:
                heat = 0.5 + number / 4
                before = [t for one in trajectory.segments[:number] for t in one.token_ids]
                logprobs = at_temperature(trainer.model, before, segment.token_ids, heat)
                segment = structs.replace(segment, logprobs=logprobs, temperature=heat)
            found.append(segment)
        return structs.replace(trajectory, segments=tuple(found))

    cool = structs.replace(group, trajectories=tuple(map(cooled, group.trajectories)))
    assert trainer.step([cool]).fresh_error < 1e-4


def at_temperature(model, before, sampled, heat):
    slots = model.slots(1, 32)
    logits, found = slots.extend([0], [before]), []
    for token in sampled:
        found.append(float(torch.log_softmax(logits[0] / heat, dim=-1)[token]))
        logits = slots.extend([0], [[token]])
    return tuple(found)


def test_tasks_with_losses_of_their_own_are_trained_side_by_side():
    own = {"other": LossParts(loss="dapo", overlong=Overlong(mask=True))}
    trainer = Trainer(a_model(), structs.replace(SETTINGS, tasks=own, max_tokens=64))
    plain = a_group(trainer.model, reward=even, seed=10)
    cut = tuple(
        structs.replace(t, task="other", status=TrajectoryStatus.TRUNCATED)
        for t in a_group(trainer.model, reward=even, seed=50).trajectories
    )
    report = trainer.step([plain, structs.replace(plain, task="other", trajectories=cut)])
    assert (report.truncated, report.is_skipped) == (0.5, False)
    assert report.samples == len(plain.trajectories)  # The others are masked.


def test_a_step_measures_how_far_engine_and_trainer_are_apart(caplog):
    trainer = Trainer(a_model(), structs.replace(SETTINGS, epochs=3))
    group = a_group(trainer.model, reward=even)
    report = trainer.step([group])
    assert report.mismatch_kl < 1e-6
    assert 0 < report.clip_share < 1
    assert not caplog.records
    # An engine that finds every token half as likely: exp(gap) - 1 - gap of a gap of log 2.
    trainer = Trainer(a_model(), SETTINGS)

    def halved(trajectory):
        segments = (
            structs.replace(one, logprobs=tuple(p - log(2) for p in one.logprobs))
            for one in trajectory.segments
        )
        return structs.replace(trajectory, segments=tuple(segments))

    off = structs.replace(group, trajectories=tuple(map(halved, group.trajectories)))
    assert trainer.step([off]).mismatch_kl == pytest.approx(1 - log(2), abs=1e-4)
    assert "engine and trainer disagree" in caplog.text


def test_a_skipped_step_says_why():
    trainer = Trainer(a_model(), structs.replace(SETTINGS, min_samples=100))
    report = trainer.step([a_group(trainer.model, reward=even)])
    assert report.is_skipped
    assert "are fewer than min_samples 100" in report.why_skipped
