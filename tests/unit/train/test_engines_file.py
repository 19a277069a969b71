"""The file about a run's engines: what it says, and what it is told when it is wrong."""

import pytest

from artangram.config.train import read_engines, read_train
from artangram.core.errors import BadInput
from artangram.core.rollout.affinity import Auto, Declared
from artangram.core.rollout.split import PrefillDecode

GOOD = """
pools:
  compute: {vllm: [bin/python, --dtype, float32], devices: ["0,1", "2,3"], slots: 8}
  bandwidth: {urls: ["http://10.0.0.7:8000"]}
affinity: {lake: compute, math: [bandwidth]}
split: {code: {prefill: compute, decode: bandwidth}}
"""


def read(tmp_path, text):
    path = tmp_path / "engines.yaml"
    path.write_text(text)
    return read_engines(path)


def test_a_file_says_which_engines_there_are_and_who_goes_where(tmp_path):
    spec = read(tmp_path, GOOD)
    assert {name: pool.size for name, pool in spec.pools.items()} == {"compute": 2, "bandwidth": 1}
    assert spec.routing == Declared(tasks={"lake": ("compute", "*"), "math": ("bandwidth",)})
    assert spec.splits.tasks == {"code": PrefillDecode(prefill="compute", decode="bandwidth")}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("pools:", "pool:"), r"engines.yaml:3: pool: unknown key; did you mean pools\?"),
        (("urls:", "url:"), r"engines.yaml:4: pools.bandwidth.url: unknown key"),
        (("slots: 8", "slots: 0"), "pools.compute.slots: 0 is too few"),
        (("vllm: [bin/python, --dtype, float32], ", ""), "are for vLLM servers"),
        (('urls: ["', 'vllm: [python], urls: ["'), "name servers that already run"),
        (("lake: compute", "lake: fast"), "'fast' is not a hardware class of these engines"),
        (
            ("decode: bandwidth", "decode: memory"),
            "'memory' is not a hardware class of these engines",
        ),
        (("{lake: compute, math: [bandwidth]}", "sometimes"), "'sometimes' is no affinity"),
        (("decode: bandwidth", "write: bandwidth"), "is no split"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, change, complaint):
    with pytest.raises(BadInput, match=complaint):
        read(tmp_path, GOOD.replace(*change))


def of_run(tmp_path, engines):
    path = tmp_path / "run.yaml"
    path.write_text(f"model: warm\ntasks: {{calc: {{}}}}\n{engines}")
    return read_train(path).engines


def test_a_run_says_how_many_or_names_the_file(tmp_path):
    read(tmp_path, GOOD)
    assert [pool.size for pool in of_run(tmp_path, "").pools.values()] == [1]
    assert [pool.size for pool in of_run(tmp_path, "engines: 3").pools.values()] == [3]
    assert set(of_run(tmp_path, "engines: engines.yaml").pools) == {"compute", "bandwidth"}
    assert of_run(tmp_path, "").routing == Auto()


@pytest.mark.parametrize("engines", ["engines: 0", "engines: [1]", "engines: nowhere.yaml"])
def test_no_engines_are_no_run(tmp_path, engines):
    with pytest.raises(BadInput):
        of_run(tmp_path, engines)
