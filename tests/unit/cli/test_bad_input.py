"""Bad input is one line on standard error that names the place and the fix, and exit code 2."""

import gzip
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

BAD_TRACES = {
    "unknown resource": ('"needs": {"cpu": 1}, "work_s": 3', '"needs": {"tpu": 1}, "work_s": 3'),
    "impossible need": ('"needs": {"cpu": 1}, "work_s": 3', '"needs": {"cpu": 5}, "work_s": 3'),
    "impossible memory": ('"b", "memory_mb": 100', '"b", "memory_mb": 5000'),
    "negative time": ('"work_s": 3', '"work_s": -3'),
    "infinite time": ('"work_s": 3', '"work_s": 1e999'),
    "fraction of a core": (
        '"needs": {"cpu": 1}, "work_s": 3',
        '"needs": {"cpu": 0.5}, "work_s": 3',
    ),
    "unknown field": ('"work_s": 3', '"work": 3'),
    "missing field": (', "work_s": 3', ""),
    "not JSON": ('"work_s": 3}]}]}', '"work_s": 3'),
    "id twice": ('"trajectory": "b"', '"trajectory": "a"'),
    "no turns": ('"turns": [{"actions": [', '"turns": [], "task": [{"actions": ['),
}
FIELDS = {
    "unknown resource": "turns[0].actions[0].needs.tpu: no such resource here; use one of: cpu",
    "impossible need": "turns[0].actions[0].needs.cpu: asks for at least 5",
    "impossible memory": "memory_mb: 5000 can never fit",
    "negative time": "turns[0].actions[0].work_s",
    "infinite time": "turns[0].actions[0].work_s",
    "fraction of a core": "turns[0].actions[0].needs.cpu: 0.5 is not a whole number",
    "unknown field": "turns[0].actions[0].work: unknown field; did you mean work_s?",
    "missing field": "turns[0].actions[0].work_s: is missing",
    "not JSON": "json: input data was truncated",
    "id twice": "trajectory: 'a' came before",
    "no turns": "turns",
}

BAD_CLUSTERS = {
    "pools: {cpu: {kind: cpu, nodes: 1, cores: 4": ":1: yaml: ",
    "pools:\n  cpu: {kind: cpu, nodes: 1, cors: 4, memory_gb: 1}\n": ":2: pools.cpu.cors: unknown",
    "pools:\n  cpu: {kind: cpu, nodes: 1, memory_gb: 1}\n": ":2: pools.cpu.cores: is missing",
    "pools:\n  cpu: {kind: cpu, nodes: -1, cores: 4, memory_gb: 1}\n": ":2: pools.cpu.nodes: -1 is",
    "pools:\n  cpu: {kind: disk}\n": ":2: pools.cpu.kind: unknown kind 'disk'",
    "jobs: {a: {share: 0}}\npools:\n  x: {kind: quota, limit: 1}\n": ":1: jobs.a.share: 0 is out",
    "": ": file: it is empty",
}


EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def guessing(tmp_path, monkeypatch):
    """A run with a task of its own, which lies beside it."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("guessing.yaml", "guessing.py"):
        (tmp_path / name).write_text((EXAMPLES / name).read_text())
    return tmp_path / "guessing.yaml"


def complaint(said) -> str:
    """The one line of a refusal; fails if it was anything else."""
    assert said.code == 2, said
    assert said.out == "", said.out
    (line,) = said.err.splitlines()
    assert line.startswith("error: "), line
    return line.removeprefix("error: ")


@pytest.mark.parametrize("case", BAD_TRACES)
def test_trace_is_refused_with_file_line_and_field(run, case, cluster, trace):
    good, bad = BAD_TRACES[case]
    text = trace.read_text()
    assert text.count(good) == 1
    trace.write_text(text.replace(good, bad))
    said = complaint(run("simulate", "--cluster", cluster, "--trace", trace))
    assert said.startswith(f"{trace}:3: {FIELDS[case]}")


def test_a_trajectory_on_two_pools_of_cores_is_refused(run, cluster, trace):
    cluster.write_text(
        cluster.read_text() + "  big: {kind: cpu, nodes: 1, cores: 4, memory_gb: 1}\n"
    )
    text = trace.read_text().replace(
        '"needs": {"cpu": 1}, "work_s": 2', '"needs": {"big": 1}, "work_s": 2'
    )
    trace.write_text(text)
    said = complaint(run("simulate", "--cluster", cluster, "--trace", trace))
    assert said.startswith(f"{trace}:2: turns[0].actions[1].needs.cpu: its trajectory lives on big")


def test_blank_lines_do_not_shift_the_line_number(run, cluster, trace):
    text = trace.read_text().replace('{"cpu": 1}, "work_s": 3', '{"tpu": 1}, "work_s": 3')
    packed = trace.with_suffix(".jsonl.gz")
    packed.write_bytes(gzip.compress(text.replace("\n", "\n\n \n").encode()))
    said = complaint(run("simulate", "--cluster", cluster, "--trace", packed))
    assert said.startswith(f"{packed}:7: turns[0].actions[0].needs.tpu: ")


def test_steps_that_go_back_are_refused(run, cluster, trace):
    text = trace.read_text().replace('{"trajectory": "a"', '{"step": 1, "trajectory": "a"')
    trace.write_text(text)
    said = complaint(run("simulate", "--cluster", cluster, "--trace", trace))
    assert said.startswith(f"{trace}:3: step: step 0 comes after step 1")


def test_truncated_file_is_refused_where_it_breaks_off(run, cluster, trace):
    whole = trace.read_bytes()
    trace.write_bytes(whole[: len(whole) - 20])
    said = complaint(run("simulate", "--cluster", cluster, "--trace", trace))
    assert said.startswith(f"{trace}:3: json: ")
    packed = trace.with_suffix(".jsonl.gz")
    packed.write_bytes(gzip.compress(whole)[:-12])
    said = complaint(run("simulate", "--cluster", cluster, "--trace", packed))
    assert said.startswith(f"{packed}")
    assert "file: compressed file ended" in said


def test_file_without_a_header_is_refused(run, cluster, trace):
    trace.write_text(trace.read_text().split("\n", 1)[1])
    said = complaint(run("simulate", "--cluster", cluster, "--trace", trace))
    assert said.startswith(f"{trace}:1: ")
    assert 'begin with {"artangram_trace": 1' in said


@pytest.mark.parametrize("text", BAD_CLUSTERS)
def test_cluster_is_refused_with_file_line_and_field(run, text, cluster, trace):
    cluster.write_text(text)
    said = complaint(run("simulate", "--cluster", cluster, "--trace", trace))
    assert said.startswith(f"{cluster}{BAD_CLUSTERS[text]}")


@pytest.mark.parametrize("name", ["best", "fixed:many", "pods:1/2/3", "pods:0", "fixed:nan", ""])
def test_unknown_policy_is_refused_before_anything_is_read(run, name, cluster, trace):
    trace.write_text(trace.read_text() + "and something wrong at the end\n")
    options = ["--policy", "elastic", "--policy", name]
    said = complaint(run("simulate", "--cluster", cluster, "--trace", trace, *options))
    assert said.startswith("policy: ")


def test_unknown_estimates_are_refused(run, cluster, trace):
    options = ["--estimates", "perfect"]
    said = complaint(run("simulate", "--cluster", cluster, "--trace", trace, *options))
    assert said.startswith("estimates: 'perfect' is unknown; use learned")


@pytest.mark.parametrize("missing", ["--cluster", "--trace"])
def test_missing_file_is_named(run, missing, cluster, trace, tmp_path):
    files = {"--cluster": cluster, "--trace": trace} | {missing: tmp_path / "absent"}
    said = complaint(run("simulate", *(word for pair in files.items() for word in pair)))
    assert said.startswith(f"{tmp_path / 'absent'}: file: no such file or directory")


def test_folder_in_place_of_a_file_is_named(run, cluster, tmp_path):
    said = complaint(run("simulate", "--cluster", cluster, "--trace", tmp_path))
    assert said.startswith(f"{tmp_path}: file: is a directory")


@pytest.mark.parametrize("option", ["--json", "--plot"])
def test_output_that_cannot_be_written_is_named(run, option, cluster, trace):
    target = trace / "below-a-file.svg"
    said = run("simulate", "--cluster", cluster, "--trace", trace, option, target)
    assert said.code == 2
    (line,) = said.err.splitlines()
    assert line.startswith(f"error: {target}: ")
    assert line.endswith("name a file you may write")


@pytest.mark.parametrize("option", ["--json", "--plot"])
def test_a_folder_in_place_of_an_output_is_named_before_anything_runs(
    run, option, cluster, trace, tmp_path
):
    (tmp_path / "folder.svg").mkdir()
    options = [option, tmp_path / "folder.svg"]
    said = complaint(run("simulate", "--cluster", cluster, "--trace", trace, *options))
    assert said == f"{tmp_path / 'folder.svg'}: is a directory; name a file you may write"


@pytest.mark.parametrize("option", ["--json", "--plot"])
def test_an_output_that_may_not_be_written_is_named_before_anything_runs(
    run, option, cluster, trace, tmp_path, monkeypatch
):
    # Nothing stops root, who runs this in a container.
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != tmp_path)
    target = tmp_path / "x.svg"
    said = complaint(run("simulate", "--cluster", cluster, "--trace", trace, option, target))
    assert said == f"{target}: Permission denied; name a file you may write"


@pytest.mark.parametrize(
    "words",
    [
        "simulate --cluster {long} --trace x",
        "simulate --cluster {cluster} --trace {long}",
        "simulate --cluster {cluster} --trace {trace} --json {long}",
        "simulate --cluster {cluster} --trace {trace} --plot {long}.svg",
        "trace generate {long}",
        "trace record {long} x.jsonl",
    ],
)
def test_a_name_that_no_file_can_have_is_one_line(run, words, cluster, trace):
    said = run(*words.format(long="x" * 300, cluster=cluster, trace=trace).split())
    assert complaint(said).startswith("x" * 300)


def test_a_pipe_in_place_of_a_trace_is_named(run, cluster, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    said = complaint(run("simulate", "--cluster", cluster, "--trace", tmp_path / "pipe"))
    assert (
        said == f"{tmp_path / 'pipe'}: file: a pipe can be read only once; save the trace to a file"
    )


def test_a_seed_below_zero_is_refused_since_it_would_be_that_above(run, cluster, trace, tmp_path):
    simulated = ["simulate", "--cluster", cluster, "--trace", trace]
    for verb in (simulated, ["trace", "generate", tmp_path / "x.jsonl"]):
        assert "'--seed'" in complaint(run(*verb, "--seed", "-1"))


@pytest.mark.parametrize(
    ("verb", "begins"),
    [
        (["run", "--cpu", "x", "true"], "cpu: 'x' is not a number of cores"),
        (["run", ""], "argv: names no program; give the program first"),
        (["run", "--timeout", "0", "true"], "timeout_s: 0.0 is not a time limit; give seconds"),
        (["run", "--timeout", "inf", "true"], "timeout_s: inf is not a time limit"),
        (["run", "--memory-mb", "3", "true"], "memory_mb: 3 is too little for any sandbox; give 4"),
        (["run", "--file", __file__, "--file", __file__, "true"], "file: two are named test_bad"),
        (["run", "--file", "/dev/null/x", "true"], "/dev/null/x: Not a directory"),
        (["run", "--url", "nonsense", "true"], "url: 'nonsense' is not a URL; give the address"),
        (["explain", "a"], "url: is missing; give --url"),
        (["run", "--json", "/dev/null/x", "true"], "/dev/null/x: File exists"),
        (["bench", "day", "--json", "/dev/null/x"], "/dev/null/x: File exists"),
        (["bench", "mopd", "--policies", "elastic,best"], "policy: unknown policy 'best'"),
        (["bench", "lab", "--seeds", "1,-1"], "seeds: '1,-1' are not seeds"),
        (["bench", "coding", "--seeds", "1,"], "seeds: '1,' are not seeds"),
        (["bench", "mopd", "--plot", "x.bmp"], "plot: x.bmp is neither .svg nor .png"),
        (["bench", "mopd", "--plot", "/dev/null/x.svg"], "/dev/null/x.svg: File exists"),
    ],
)
def test_a_verb_refuses_before_it_begins(run, verb, begins, monkeypatch):
    monkeypatch.delenv("ARTANGRAM_URL", raising=False)
    assert complaint(run(*verb)).startswith(begins)


def test_a_service_that_is_not_there_is_named(run):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Nobody else gets it, and nobody listens.
        url = "http://127.0.0.1:{1}".format(*taken.getsockname())
        said = complaint(run("status", "--url", url))
    assert said.startswith(f"url: {url} does not answer: ")
    assert "; start it with `artangram up`" in said


@pytest.mark.parametrize("target", ["{trace}/x.jsonl", "{folder}", ".", "", "-"])
def test_generated_trace_that_cannot_be_written_is_named(run, target, trace):
    path = target.format(trace=trace, folder=trace.parent)
    said = complaint(run("trace", "generate", path, "--family", "lab", "--set", "n=2"))
    assert said.endswith("name a file you may write")


def test_cluster_that_cannot_be_written_is_named(run, trace, tmp_path):
    options = ["--family", "lab", "--cluster", trace / "x.yaml"]
    said = complaint(run("trace", "generate", tmp_path / "x.jsonl", *options))
    assert said.startswith(f"{trace / 'x.yaml'}: ")


def test_one_file_for_the_trace_and_its_cluster_is_refused(run, tmp_path):
    same = tmp_path / "same"
    said = complaint(run("trace", "generate", same, "--family", "lab", "--cluster", same))
    assert said == f"--cluster: {same} is the trace; give it a file of its own"
    said = complaint(run("trace", "generate", same, "--family", "lab", "--json", same))
    assert said == f"--json: {same} is the trace; give it a file of its own"
    assert not same.exists()


@pytest.mark.parametrize(
    ("option", "taken", "what"),
    [
        ("--json", "small.jsonl", "the trace"),
        ("--json", "small.yaml", "the cluster"),
        ("--plot", "x.svg", "--json"),
    ],
)
def test_a_report_takes_the_place_of_nothing_it_was_made_of(
    run, option, taken, what, cluster, trace
):
    before = trace.read_bytes(), cluster.read_bytes()
    path = trace.parent / taken
    words = ["simulate", "--cluster", cluster, "--trace", trace, "--json", trace.parent / "x.svg"]
    said = complaint(run(*words, option, path))
    assert said == f"{option}: {path} is {what}; give it a file of its own"
    assert (trace.read_bytes(), cluster.read_bytes()) == before


def test_a_damaged_journal_is_named_once(run, tmp_path):
    (tmp_path / "journal.sqlite").write_text("not a database, but longer than its header" * 9)
    said = complaint(run("trace", "record", tmp_path, tmp_path / "x.jsonl"))
    assert said == f"{tmp_path}: file is not a database; restore it from a copy"


@pytest.mark.parametrize(
    ("options", "begins"),
    [
        (["--family", "chess"], "family: unknown family 'chess'"),
        (["--preset", "huge"], "preset: coding has no 'huge'"),
        (["--set", "bach=3"], "bach: unknown field; did you mean batch?"),
        (["--set", "batch=0"], "batch: expected `int` >= 1"),
        (["--set", "batch=1.5"], "batch: expected `int`, got '1.5'"),
        (["--set", "batch"], "--set: 'batch' is not a setting; write NAME=VALUE"),
        (["--size", "cores=x", "--cluster", "{tmp}/c.yaml"], "cores: "),
    ],
)
def test_generate_refuses_settings_it_does_not_know(run, options, begins, tmp_path: Path):
    words = [word.format(tmp=tmp_path) for word in options]
    said = complaint(run("trace", "generate", tmp_path / "x.jsonl", *words))
    assert said.startswith(begins)
    assert not (tmp_path / "x.jsonl").exists()


def test_the_installed_command_says_one_line_and_ends_with_2(trace, tmp_path):
    argv = [sys.executable, "-c", "from artangram.cli import main; main()", "simulate"]
    argv += ["--cluster", str(tmp_path / "absent.yaml"), "--trace", str(trace)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        f"error: {tmp_path / 'absent.yaml'}: file: no such file or directory; "
        "name a readable YAML file\n"
    )


@pytest.mark.parametrize("place", ["absent", "empty"])
def test_an_exam_of_a_run_that_is_not_there_is_refused(run, guessing, place, tmp_path):
    (tmp_path / "empty" / "guessing" / "checkpoints").mkdir(parents=True)
    out = tmp_path / place
    said = complaint(run("eval", guessing, "--out", out))
    assert said.startswith(f"{out / 'guessing'}: holds no checkpoint; name the --out of `train`")
    assert f"say --model {guessing.parent / 'models' / 'guessing'}" in said


BAD_TASKS = {
    'task: "absent_module:Task"': "task: 'absent_module:Task': No module named 'absent_module'",
    'task: "guessing:Absent"': "task: 'guessing:Absent': module 'guessing' has no attribute",
    'task: "guessing:COLOURS"': "task: 'guessing:COLOURS' makes nothing",
    'task: "guessing"': "task: 'guessing': module 'guessing' has no attribute",
    'task: ":Task"': "task: ':Task': ValueError: Empty module name",
    'task: "broken_task:Task"': "task: 'broken_task:Task': NameError: name 'x' is not defined (",
    'task: "unwritten_task:Task"': "task: 'unwritten_task:Task': SyntaxError: ",
    'task: "guessing:Guessing", options: {level: 3}': "options: do not fit 'guessing:Guessing': ",
}


@pytest.mark.parametrize("verb", [["train", "--print-plan"], ["train"], ["eval"]])
@pytest.mark.parametrize("task", BAD_TASKS)
def test_a_task_that_cannot_be_made_is_refused_with_file_line_and_field(run, guessing, task, verb):
    (guessing.parent / "broken_task.py").write_text("\nx\n")
    (guessing.parent / "unwritten_task.py").write_text("def\n")
    text = guessing.read_text()
    guessing.write_text(text.replace('task: "guessing:Guessing"', task))
    said = complaint(run(*verb, guessing))
    assert said.startswith(f"{guessing}:4: tasks.guessing.{BAD_TASKS[task]}")


def test_an_option_that_a_shipped_task_does_not_know_is_refused_with_its_line(run, guessing):
    text = guessing.read_text().replace("tasks:", "tasks:\n  calc:\n    options: {level: 2}")
    guessing.write_text(text)
    said = complaint(run("train", guessing, "--print-plan"))
    assert said.startswith(f"{guessing}:5: tasks.calc.options: a shipped task knows no 'level'")


@pytest.fixture
def with_model(guessing):
    """The same run; its model has everything that a plan looks at."""
    from artangram.models.vocabulary import Vocabulary

    directory = guessing.parent / "models" / "guessing"
    Vocabulary(["word"]).save(directory)
    (directory / "config.json").write_text('{"max_position_embeddings": 8}')
    return guessing


def test_a_plan_of_a_task_of_ones_own_is_shown(run, with_model):
    said = run("train", with_model, "--print-plan")
    assert (said.code, "guessing:Guessing" in said.out) == (0, True)


@pytest.mark.parametrize("verb", [["train", "--print-plan"], ["train"]])
def test_a_run_without_its_model_is_refused(run, guessing, verb):
    assert f"model: {guessing.parent}/models/guessing is not a model" in complaint(
        run(*verb, guessing)
    )


def test_a_plan_for_more_cores_than_there_are_is_refused(run, with_model):
    with_model.write_text(f"cluster: cluster.yaml\n{with_model.read_text()}")
    (with_model.parent / "cluster.yaml").write_text("pools: {cpu: {kind: cpu, cores: 100000}}")
    said = complaint(run("train", with_model, "--print-plan"))
    assert "cluster.cores: 100000 cores are more than the" in said


def test_affinity_of_a_task_that_the_run_does_not_have_is_refused(run, with_model):
    with_model.write_text(f"engines: engines.yaml\n{with_model.read_text()}")
    (with_model.parent / "engines.yaml").write_text("pools: {a: {count: 1}}\naffinity: {chess: a}")
    said = complaint(run("train", with_model, "--print-plan"))
    assert "engines.affinity.chess: is not a task; say one of guessing, or default" in said


def test_a_run_that_is_not_there_is_not_gone_on_with(run, guessing, tmp_path):
    said = complaint(run("train", guessing, "--resume", "--out", tmp_path / "absent"))
    assert said.startswith(f"{tmp_path / 'absent' / 'guessing' / 'checkpoints'}: holds no checkpoi")
    assert not (tmp_path / "absent").exists()
