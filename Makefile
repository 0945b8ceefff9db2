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

.PHONY: help install demo demo-real test check check-instructions fuzz-smoke format wheel-test bench bench-checkpoints bench-core bench-inference bench-knowledge bench-replay bench-rivals bench-serve clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# //p' Makefile

install: $(VENV)/.installed

RUST := Cargo.toml Cargo.lock $(shell find crates -name '*.rs' -o -name Cargo.toml)

$(VENV)/.installed: pyproject.toml $(RUST)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	touch $@

demo: install
	$(BIN)/python demo/run.py

demo-real: install
	$(BIN)/python demo/real.py

test: install
	cargo test --quiet --workspace --exclude graftline-py
	$(BIN)/python -m pytest

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_rules.py
	$(BIN)/python scripts/check_sizes.py
	$(BIN)/python scripts/models_page.py --check
	cargo fmt --check
	cargo clippy --quiet --workspace --all-targets -- -D warnings

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	cargo fmt

# A wheel, installed alone into an empty environment: the core needs numpy and nothing else.
wheel-test: install
	rm -rf build/wheel && mkdir -p build/wheel
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/python -m pip install --quiet build/wheel/*.whl
	cd build/wheel && venv/bin/python ../../scripts/wheel_check.py

# Instructions of the Rust core's operations against bench/core/instructions.json, which
# `python -m bench.core.instructions --renew` writes anew; needs valgrind.
check-instructions: install
	$(BIN)/python -m bench.core.instructions --check

# Random operations on the Rust core beside a model; crates/core/fuzz/README.md tells how to fuzz it.
fuzz-smoke:
	cargo test --quiet --release --no-default-features --target-dir target/fuzz --manifest-path crates/core/fuzz/Cargo.toml

bench-core: install
	$(BIN)/python -m bench.core.bench_core --json $(OUT)/bench_core.json

# Beside SGLang's cores, which the first run installs into out/rivals (6 GB).
bench-rivals: install
	$(BIN)/python -m bench.rivals --out $(OUT)

# Hours, in one process; what is there is kept in out/replay, so it can be stopped. `--quick 500` for minutes.
bench-replay: install
	nice -n 10 $(BIN)/python -m bench.replay.bench_replay --out $(OUT) --docs docs/replay

bench-checkpoints: install
	nice -n 10 $(BIN)/python -m bench.replay.bench_checkpoints --out $(OUT) --docs docs/replay

bench-inference: install
	nice -n 10 $(BIN)/python -m bench.replay.bench_inference --out $(OUT) --docs docs/replay

bench-knowledge: install
	nice -n 10 $(BIN)/python -m bench.replay.bench_knowledge --out $(OUT) --docs docs/replay

bench: install
	$(BIN)/python -m bench.serve.conversation --breakdown --out $(OUT)
	$(BIN)/python -m bench.serve.branch --out $(OUT)
	$(BIN)/python -m bench.serve.batch --out $(OUT)

bench-serve: install
	$(BIN)/python -m bench.serve.conversation --preset demo --out $(OUT)
	$(BIN)/python -m bench.serve.branch --preset demo --page-sizes 16 --out $(OUT)
	$(BIN)/python -m bench.serve.tiers --preset demo --agents 6 --turns 12 --last-tokens 1200 --out $(OUT)

clean:
	rm -rf $(VENV) $(OUT) build target src/graftline/_core.abi3.so dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
