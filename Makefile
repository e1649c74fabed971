# `make demo` and `make test` set up what they need: Python ≥ 3.11, npm, git and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Tests mostly wait for processes that they started: more of them at a time than there are cores. `make BESIDE=` for one.
BESIDE ?= -n 4 --dist worksteal
QWEN_VERSIONS := 0.24.4 0.23.0

.PHONY: demo test check lint types unit e2e safety bench soak dist clean fetch

demo: $(READY)
	$(BIN)/qwen-watcher demo

test: lint types unit e2e

# The fast inner loop: no network once set up.
check: lint types
	$(BIN)/pytest -q $(BESIDE) -m "not e2e and not systemd and not slow"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

unit: $(READY)
	$(BIN)/pytest $(BESIDE) -m "not e2e and not systemd"
	$(BIN)/pytest -m systemd

e2e: $(READY) fetch
	$(BIN)/pytest -m e2e

# The real Qwen Code and its Node.js, from the npm registry into an ignored folder.
fetch: $(READY)
	$(BIN)/python -m tests.support.qwen_install $(QWEN_VERSIONS)

safety: $(READY)
	$(BIN)/python -m tests.safety

bench: $(READY)
	$(BIN)/python -m bench

soak: $(READY)
	$(BIN)/python -m bench.soak

dist: $(READY)
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis dist build
