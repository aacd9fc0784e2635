# Everything a person types. `make run` on a fresh clone needs Python 3.11 or newer and nothing else.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
TESTS := .venv/.installed-tests
PEERS := .venv-peers

# Where a container sets it, each of some hundred processes of the tests would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run lab test check quick oldest newest bench lessons docs peers screenshots clean

run: $(INSTALLED)  ## the dashboard, on localhost; it prints where
	$(BIN)/explorer serve

lab: $(INSTALLED)  ## the notebooks, in JupyterLab
	$(BIN)/explorer lab

PYTEST := $(BIN)/python -m pytest --numprocesses=logical --maxprocesses=4 --dist=loadfile --no-loadscope-reorder

# Processes of the tests, and all that these start, have tests/early/sitecustomize.py.
test quick: export PYTHONPATH := $(CURDIR)/tests/early$(if $(PYTHONPATH),:$(PYTHONPATH))

# The tests of the package alone run where no plug-in can be imported, then all others: see tests/core.py.
# Two to four processes, each with whole files in the order they are listed: notebooks and a browser come first. The
# translated lessons have the code and outputs of the others, which tests/test_translations.py compares. Theory is tested
# against measurement in full where either has changed, and so are cells that train: see tests/rotation.py.
test: export EXPLORER_THEORY_TESTS ?= fifth
test: $(TESTS)  ## every test: units, notebooks, and the page in Chromium and Firefox where they are
	EXPLORER_PLUGINS=absent $(PYTEST) tests
	EXPLORER_PLUGINS=present $(PYTEST) --nbval --nbval-current-env --nbval-cell-timeout=120 \
		--ignore=notebooks/lessons/zh

check: $(TESTS)  ## what a change must pass: lint, types, tests
	$(BIN)/ruff check
	$(BIN)/ruff format --check --quiet
	$(BIN)/mypy
	$(MAKE) test

quick: $(TESTS)  ## at each step: lint, types, goldens, and the tests of the files that changed; no browser
	$(BIN)/ruff check
	$(BIN)/ruff format --check --quiet
	$(BIN)/mypy
	$(BIN)/python -m pytest --numprocesses=logical --maxprocesses=4 --dist=loadfile $$($(BIN)/python tests/touched.py)

# $(1) names the environment, $(2) is uv's rule for choosing among the versions that pyproject.toml allows.
define tests_with
uv venv --quiet --allow-existing .venv-$(1)
uv pip install --quiet --python .venv-$(1)/bin/python --resolution $(2) --upgrade --torch-backend cpu -e '.$(EXTRAS)'
.venv-$(1)/bin/python -m pytest -W default tests --ignore=tests/browser  # packages warn of older and newer ones
endef

oldest:  ## the tests with the oldest packages that pyproject.toml allows, in .venv-oldest; needs uv; no browser
	$(call tests_with,oldest,lowest-direct)

newest:  ## the same with the newest packages, torch among them, in .venv-newest
	$(call tests_with,newest,highest)

bench: $(TESTS)  ## prints a table and writes benchmarks/results.json
	$(BIN)/python -m benchmarks

lessons: $(TESTS)  ## executes the lessons, stores what comes out, and writes their translations
	$(BIN)/python -m benchmarks.lessons

SITE := $(BIN)/python -m sphinx --quiet --fail-on-warning -c docs -d build/doctrees

docs: $(TESTS)  ## lessons and guides as a site that needs no server, in build/site; the lessons in 中文, too
	$(SITE)/en . build/site
	$(SITE)/zh -D language=zh_CN . build/site/zh

peers: $(PEERS)/.installed  ## other ways to read the same statistics, in .venv-peers; writes docs/peers.md
	$(PEERS)/bin/python -m benchmarks.peers

screenshots: $(TESTS)  ## the README's pictures, still and moving, taken of the page in Chromium
	$(BIN)/python -m benchmarks.screenshots

clean:
	rm -rf .venv .venv-oldest .venv-newest $(PEERS) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find explorer tests benchmarks notebooks \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +

# On Linux plain pip takes the torch that brings gigabytes of CUDA along. uv, where it is installed, knows where PyTorch
# keeps its other builds and takes the one for this machine's driver: without a GPU the CPU's. If it fails, pip goes on.
# The stamp is the last thing written: an interrupted install is done again, a changed requirement too.
define environment
$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed; got " + sys.version.split()[0])'
$(PYTHON) -m venv $(1)
if [ "$$(uname -s)" = Linux ] && command -v uv > /dev/null; then \
	uv pip install --quiet --compile-bytecode --python $(1)/bin/python --torch-backend auto -c constraints.txt torch || true; fi
$(call package,$(1),$(2))
endef
package = $(1)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.$(2)'

# The page and the notebooks need the package alone. Tests and benchmarks add to the same environment what they need.
$(INSTALLED): pyproject.toml constraints.txt
	$(call environment,.venv,[sweeps])
	touch $@

EXTRAS := [docs,models,sweeps,test]
$(TESTS): $(INSTALLED)
	$(call package,.venv,$(EXTRAS))
	touch $@

$(PEERS)/.installed: pyproject.toml constraints.txt benchmarks/peers/requirements.txt
	$(call environment,$(PEERS))
	$(PEERS)/bin/python -m benchmarks.peers.install
	touch $@
