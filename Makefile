# Everything a newcomer needs. `make demo` and `make test` set themselves up in .venv.
PYTHON ?= python3
BIN := .venv/bin
# where it is set, each of the many processes of a test run compiles every module anew
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: demo test test-quick coverage check format bench torture mutants sbom audit docs clean

demo: .venv/core  ## simulated cohorts -> pretrain -> embed -> evaluate -> report
	$(BIN)/nerve demo out/demo

test: .venv/dev  ## all tests that can run on this machine, in about ten minutes on two cores; one: .venv/bin/pytest FILE -k NAME
	$(BIN)/python -m pytest -n auto --dist loadgroup

test-quick: .venv/dev  ## the short ones, over every package and without doctests, for the inner loop
	$(BIN)/python -m pytest -n auto --dist loadgroup -m "not slow and not realdata and not browser" tests

coverage: .venv/dev  ## all tests, and which share of the lines and branches they run
	$(BIN)/python -m pytest -n auto --dist loadgroup --cov --cov-report=term

check: .venv/dev  ## format, lint, types, import contracts, docstrings
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m numpydoc lint $$(find src/nerve -name '*.py')

format: .venv/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/dev  ## speed and memory, each as a ratio to a reference in the same run
	$(BIN)/python -m benchmarks

torture: .venv/dev  ## faults, bad input and load; fills the table of docs/reliability.md
	$(BIN)/python -m torture

mutants: .venv/dev  ## changes to the source that no test notices; for a night
	$(BIN)/mutmut run
	$(BIN)/mutmut results

sbom: .venv/dev  ## bill of materials (out/sbom.json) and docs/licences.md
	$(BIN)/python tools/sbom.py --out out/sbom.json --licences docs/licences.md

audit: .venv/dev  ## known vulnerabilities of the pinned versions, where a service can be asked
	$(PIP) pip-audit
	$(BIN)/python tools/audit.py

docs: .venv/docs
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

# torch comes first and by pip, so that a CPU build is taken where one is offered and no other package pulls a second.
.venv/torch: constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) torch
	touch $@

.venv/core: .venv/torch pyproject.toml
	$(PIP) --editable .
	touch $@

.venv/dev: .venv/torch pyproject.toml
	$(PIP) --editable ".[dev]"
	touch $@ .venv/core

.venv/docs: .venv/dev
	$(PIP) --editable ".[docs]"
	touch $@

clean:  ## what `make` built; out/, where results are, stays
	rm -rf .venv docs/_build build *.egg-info
