"""How few devices are enough: never those on which some calls are refused."""

from artangram_bench.mopd import STATIC_GPUS


def test_a_policy_that_refuses_calls_has_too_few_devices(run, tmp_path):
    words = ["--batch", "8", "--seeds", "0", "--policies", "static", "--plot", tmp_path / "x.svg"]
    rows = run("bench", "mopd", *words, "--json", "-").json["figures"]
    assert {row["gpus"] for row in rows} == {STATIC_GPUS}
    assert all(row["act_mean_s"] == row["static_act_s"] for row in rows)
    assert (tmp_path / "x.svg").exists()
