# Everything a developer or a user runs. `make demo` and `make test` need Python >= 3.11 and nothing else: each makes the
# environment it needs (scripts/environment.py).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
COMPAT := .venv-compat
PACKAGES := resolute resolute_agent resolute_provisioner resolute_master resolute_cli resolute_sim resolute_web
# More than there are processors: most of a test of real programs is waiting.
WORKERS ?= 6
SEEDS ?= 2000
SEED ?=
STORAGE ?=
CLOUD ?=

LINTERS := ruff mypy pyright imports
.PHONY: demo showcase screenshots quick test web-full search lint $(LINTERS:%=lint-%) format sim bench campaign deploy-faults nightly hostile lock audit sbom images release clean

demo: $(VENV)/$(if $(STORAGE)$(CLOUD),dev,demo).ready # STORAGE=s3 and CLOUD=aws or gcp need fakes of the tests
	$(if $(CLOUD),PYTHONPATH=tests $(BIN)/python -m demo.cloud $(CLOUD),$(BIN)/python -m demo) $(if $(KEEP),--keep) $(if $(STORAGE),--storage $(STORAGE))

showcase: $(VENV)/demo.ready # a populated cluster to look at: DAYS=30 takes less time to fill, PORT=8099
	$(BIN)/python -m showcase $(if $(DAYS),--days $(DAYS)) $(if $(PORT),--port $(PORT))

screenshots: $(VENV)/dev.ready # of every page of it, into docs/images; needs Chromium
	$(BIN)/python -m showcase $(if $(DAYS),--days $(DAYS)) --pictures docs/images

# A run starts hundreds of processes: each would compile all modules again.
quick test search: export PYTHONDONTWRITEBYTECODE :=

quick: $(VENV)/dev.ready
	RESOLUTE_SIM_SEEDS=20 $(BIN)/python -m pytest -q tests/unit tests/properties tests/conformance/test_store* tests/simulation/test_worlds.py

test: $(VENV)/dev.ready $(COMPAT)/ready
	$(BIN)/python -m pytest -n $(WORKERS)

web-full: $(VENV)/dev.ready # every page for every caller, amount, width and theme, with ten thousand experiments
	RESOLUTE_WEB_FULL=1 $(BIN)/python -m pytest -q tests/integration/web/test_web_cover.py

search: $(VENV)/dev.ready # examples that were never tried
	RESOLUTE_TEST_EFFORT=night $(BIN)/python -m pytest -q -n $(WORKERS) tests/properties --hypothesis-profile=search

lint: $(VENV)/dev.ready
	@$(MAKE) --no-print-directory --output-sync=target --keep-going -j $(words $(LINTERS)) $(LINTERS:%=lint-%)

$(LINTERS:%=lint-%): $(VENV)/dev.ready

lint-ruff:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint-mypy:
	$(BIN)/mypy

lint-pyright:
	$(BIN)/pyright

lint-imports:
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

campaign-search: $(VENV)/dev.ready
	PYTHONPATH=tests $(BIN)/python -m campaign.search $(if $(TRIALS),--trials $(TRIALS))

hostile: $(VENV)/dev.ready
	PYTHONPATH=tests $(BIN)/python -m hostile $(if $(SEED),--seed $(SEED)) $(if $(BUDGET),--budget $(BUDGET)) $(if $(STORE),--store $(STORE))

deploy-faults: $(VENV)/dev.ready # `det deploy aws` and `gcp`, `up` and `down`, killed at seeded moments; KILLS=20 each
	RESOLUTE_DEPLOY_KILLS=$(or $(KILLS),20) $(BIN)/python -m pytest -n $(WORKERS) tests/nightly/test_deploy_faults.py tests/nightly/test_deploy_faults_gcp.py

nightly: $(VENV)/dev.ready $(COMPAT)/ready # everything, with what takes too long for a push
	RESOLUTE_TEST_EFFORT=night $(BIN)/python -m pytest -n $(WORKERS) -o 'norecursedirs=.* node_modules'

$(VENV)/demo.ready: pyproject.toml scripts/environment.py requirements/demo.lock
	$(PYTHON) scripts/environment.py $(VENV) requirements/demo.lock --torch --editable
	touch $@

$(VENV)/dev.ready: pyproject.toml scripts/environment.py requirements/dev.lock
	$(PYTHON) scripts/environment.py $(VENV) requirements/dev.lock --torch --editable
	touch $@ $(VENV)/demo.ready

$(COMPAT)/ready: requirements/compat.lock scripts/environment.py
	$(PYTHON) scripts/environment.py $(COMPAT) requirements/compat.lock
	touch $@

lock: $(VENV)/dev.ready # the newest releases that have settled; PACKAGE=name for one, KEEP=1 after a change of pyproject.toml
	$(BIN)/python scripts/lock.py $(if $(KEEP),,$(if $(PACKAGE),--upgrade-package $(PACKAGE),--upgrade))

audit: $(VENV)/dev.ready # what is locked, against published vulnerabilities; asks the package index
	$(BIN)/python scripts/audit.py

sbom: $(VENV)/dev.ready # dist/*.cdx.json of the wheel, or of an image's Python packages: IMAGE=name
	$(BIN)/python scripts/sbom.py $(if $(IMAGE),--image $(IMAGE))

images: $(VENV)/dev.ready # of master, agent and tasks, with bills in dist/; BASE=, CUDA_BASE= and WHEELHOUSE= as docs/images.md says
	$(BIN)/python -m scripts.images $(if $(BASE),--base $(BASE)) $(if $(CUDA_BASE),--cuda-base $(CUDA_BASE)) $(if $(WHEELHOUSE),--wheelhouse $(WHEELHOUSE))

release: $(VENV)/dev.ready # wheel, sdist, checksums, bill of materials and changes of this version, in dist/release
	$(BIN)/python -m scripts.release

clean:
	rm -rf $(VENV) $(COMPAT) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .demo
