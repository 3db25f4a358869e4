# Everything a developer or a user runs. `make demo` and `make test` need Python >= 3.11 and nothing else: each makes the
# environment it needs (scripts/environment.py).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
COMPAT := .venv-compat
PACKAGES := resolute resolute_agent resolute_provisioner resolute_master resolute_cli resolute_sim
WORKERS ?= 2
SEEDS ?= 2000
SEED ?=

.PHONY: demo quick test search lint format sim bench campaign clean

demo: $(VENV)/demo.ready
	$(BIN)/python -m demo $(if $(KEEP),--keep)

quick: $(VENV)/dev.ready
	RESOLUTE_SIM_SEEDS=20 $(BIN)/python -m pytest -q tests/unit tests/properties tests/conformance/test_store* tests/simulation/test_worlds.py

test: $(VENV)/dev.ready $(COMPAT)/ready
	$(BIN)/python -m pytest -n $(WORKERS)

search: $(VENV)/dev.ready # examples that were never tried
	$(BIN)/python -m pytest -q -n $(WORKERS) tests/properties --hypothesis-profile=search

lint: $(VENV)/dev.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(VENV)/dev.ready
	$(BIN)/ruff check --fix-only -q .
	$(BIN)/ruff format .

sim: $(VENV)/dev.ready
	$(BIN)/python -m resolute_sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

bench: $(VENV)/dev.ready
	$(BIN)/python -m benchmarks

campaign: $(VENV)/dev.ready
	PYTHONPATH=tests $(BIN)/python -m campaign $(if $(SEED),--seed $(SEED)) $(if $(KILLS),--kills $(KILLS)) $(if $(STORE),--store $(STORE))

$(VENV)/demo.ready: pyproject.toml scripts/environment.py
	$(PYTHON) scripts/environment.py $(VENV) '.[cli,master,agent,torch]' --editable
	touch $@

$(VENV)/dev.ready: pyproject.toml scripts/environment.py
	$(PYTHON) scripts/environment.py $(VENV) '.[cli,master,agent,docker,otel,torch,bench,test]' --editable
	touch $@ $(VENV)/demo.ready

$(COMPAT)/ready: tests/compat/requirements.txt scripts/environment.py
	$(PYTHON) scripts/environment.py $(COMPAT) -r tests/compat/requirements.txt
	touch $@

clean:
	rm -rf $(VENV) $(COMPAT) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .demo
