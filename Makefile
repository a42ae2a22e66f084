# Every target sets up what it needs in .venv (bench: .venv-bench) and is quick the next time.
# Another Python: make test PYTHON=python3.12

PYTHON ?= python3
PIP     = bin/python -m pip --disable-pip-version-check install -qq
NEEDS   = pyproject.toml $(wildcard requirements/*.txt)
WITH    = made-with-$(subst /,-,$(PYTHON))

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run test check bench faults compat reference pictures clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "%-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: .venv/run.done  ## a short tour of what palaver does
	.venv/bin/python examples/tour.py

test: .venv/test.done .venv/model.done  ## all tests, with the coverage gate
	.venv/bin/python -m pytest -n 2 --cov

check: .venv/check.done  ## linter, formatter, type checkers, docs, built packages
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/basedpyright
	.venv/bin/python -m tools.reference --check
	.venv/bin/python -m tools.check_docs
	.venv/bin/python -m tools.check_dist

bench: .venv-bench/bench.done  ## speed, beside peers and the bare floor
	.venv-bench/bin/python -m bench

# a shorter run, with a tenth of every count: make faults FAULTS_SCALE=0.1
faults: .venv/test.done .venv/model.done  ## fault injection, and every property test with many more examples
	HYPOTHESIS_PROFILE=faults .venv/bin/python -m pytest tests -n 2 --dist worksteal -v -m "faults or hypothesis"

compat:  ## palaver inside other frameworks
	@echo "nothing yet"

reference: .venv/check.done  ## write docs/reference again
	.venv/bin/python -m tools.reference

pictures: .venv/check.done  ## make the pictures in the docs again
	.venv/bin/python -m tools.pictures

clean:  ## remove everything made here
	rm -rf .venv .venv-bench build dist .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment, made anew when PYTHON changes. hatchling and editables build palaver in place.
.venv/$(WITH) .venv-bench/$(WITH):
	@echo "making $(@D) (the first time only)"
	@$(PYTHON) -m venv --clear $(@D)
	@touch $@

.venv/%.done: $(NEEDS) constraints.txt .venv/$(WITH)
	@echo "installing requirements/$*.txt"
	@.venv/$(PIP) -c constraints.txt hatchling editables
	@.venv/$(PIP) -c constraints.txt --no-build-isolation -r requirements/$*.txt
	@touch $@

# The small model that tests talk to, in the user's cache.
.venv/model.done: .venv/test.done
	@.venv/bin/palaver model install smollm2
	@touch $@

.venv-bench/%.done: $(NEEDS) constraints-bench.txt .venv-bench/$(WITH)
	@echo "installing requirements/$*.txt"
	@.venv-bench/$(PIP) -c constraints-bench.txt hatchling editables
	@.venv-bench/$(PIP) -c constraints-bench.txt --no-build-isolation -r requirements/$*.txt
	@touch $@
