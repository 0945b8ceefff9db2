# make demo   installs, makes a small hybrid model, serves it, talks to it, shows what was reused
# make test   installs and runs all tests
# make check  format, lint, types, layers, rules, sizes
# make bench  benchmarks: tables on the screen, JSON in out/

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
OUT    ?= out
export HF_HUB_OFFLINE = 1
export TOKENIZERS_PARALLELISM = false

.PHONY: install demo demo-real test check format bench bench-serve clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# //p' Makefile

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	touch $@

demo: install
	$(BIN)/python demo/run.py

demo-real: install
	$(BIN)/python demo/real.py

test: install
	$(BIN)/python -m pytest

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_rules.py
	$(BIN)/python scripts/check_sizes.py
	$(BIN)/python scripts/models_page.py --check

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: bench-serve

bench-serve: install
	$(BIN)/python bench/serve/conversation.py --out $(OUT)

clean:
	rm -rf $(VENV) $(OUT) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
