"""Advantages against numbers worked out by hand."""

import pytest

from artangram.train.advantages import batch_relative, group_relative, has_signal


def test_group_relative_divides_by_the_sample_deviation():
    # Mean 0.25; squared gaps 0.5625 + 3 * 0.0625 = 0.75 over 3 siblings less one: deviation 0.5.
    assert group_relative([1.0, 0.0, 0.0, 0.0]) == pytest.approx(
        [0.75 / 0.5001, -0.25 / 0.5001, -0.25 / 0.5001, -0.25 / 0.5001]
    )


def test_siblings_with_equal_rewards_have_no_advantage():
    assert group_relative([0.3, 0.3]) == [0.0, 0.0]
    assert not has_signal([0.3, 0.3])
    assert has_signal([0.3, 0.4])


def test_batch_relative_shares_one_scale_between_groups():
    # Centred: +-0.5 and +-0.1; mean 0, deviation sqrt((0.25 + 0.01) / 2).
    scale = 0.13**0.5 + 1e-4
    found = batch_relative([[1.0, 0.0], [0.6, 0.4]])
    assert found[0] == pytest.approx([0.5 / scale, -0.5 / scale])
    assert found[1] == pytest.approx([0.1 / scale, -0.1 / scale])
