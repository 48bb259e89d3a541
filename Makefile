# `make run` and `make serve` have a light environment, .venv-run; everything else runs in .venv. Both
# are created on first use, and again when pyproject.toml or the pins change. PYTHON chooses the
# interpreter: make test PYTHON=python3.12

PYTHON ?= $(firstword $(shell command -v python3.11 python3.12 python3.13 python3 python))
BIN := .venv/bin
LIGHT := .venv-run
SAMPLES := build/samples
# Install wheels only, and check their hashes. --no-require-hashes: the project itself has none.
PINS := constraints-hashed.txt
FULL := .[all,dev]
SMALL := .[cli,documents,encoder,ocr,serve]
QUIET := --quiet --quiet --disable-pip-version-check
INSTALL := pip install $(QUIET) --no-require-hashes --only-binary :all: \
	--constraint $(PINS) --build-constraint $(PINS)

# older versions of pip cannot read hashes in constraints
pinned-pip = sed -n '/^pip==/,/[^\\]$$/p' $(PINS) > $(1)/pip.txt \
	&& $(1)/bin/pip install $(QUIET) --require-hashes --requirement $(1)/pip.txt

.PHONY: help run serve test lint lint-deploy bench trust wheel image docs lock licences codec screenshot venv light clean

help:
	@echo "make run     index the sample documents and ask three questions"
	@echo "make serve   show the sample documents in the browser"
	@echo "make test    run all checks and tests"
	@echo "make lint    format and check the code"
	@echo "make bench   compare the speed with other libraries"
	@echo "make trust   damage files, kill writers and run for an hour: docs/reliability.md"
	@echo "make wheel   build the wheel and test it in a clean environment"
	@echo "make image   run the steps of the Dockerfile without Docker, and what it would serve"
	@echo "make docs    build the documentation site in build/site, and check its links"
	@echo "make lock    pin the dependencies again, with hashes; make licences lists them"
	@echo "make codec   fit the shipped codec on the sets in SETS"
	@echo "make clean   remove .venv, .venv-run and build/"

# $(call environment,FOLDER,PACKAGES,HOW LONG): create a virtual environment unless it is up to date
environment = if ! { echo "$(2)" && cat $(PINS) pyproject.toml; } | cmp -s - $(1)/made-from; then \
		echo "creating $(1) ($(3))"; \
		rm -rf $(1) && $(PYTHON) -m venv $(1) \
		&& $(call pinned-pip,$(1)) \
		&& $(1)/bin/$(INSTALL) --editable $(2) \
		&& { echo "$(2)" && cat $(PINS) pyproject.toml; } > $(1)/made-from; \
	fi

venv:
	@$(call environment,.venv,'$(FULL)',a few minutes the first time)

light:
	@$(call environment,$(LIGHT),'$(SMALL)' reportlab,about a minute the first time)

run: light
	@$(LIGHT)/bin/python samples/make_samples.py $(SAMPLES)
	@echo; echo "$$ glie index $(SAMPLES) --to build/samples.glie"
	@$(LIGHT)/bin/glie index $(SAMPLES) --to build/samples.glie
	@while read -r question; do \
		echo; echo "$$ glie search build/samples.glie \"$$question\" --top 3"; \
		$(LIGHT)/bin/glie search build/samples.glie "$$question" --top 3 || exit 1; \
	done < samples/questions.txt
	@echo; echo "$$ glie info build/samples.glie"
	@$(LIGHT)/bin/glie info build/samples.glie
	@echo; echo "now your documents: $(LIGHT)/bin/glie index YOUR_FOLDER --to your.glie"

serve: light
	@$(LIGHT)/bin/python samples/make_samples.py $(SAMPLES)
	@$(LIGHT)/bin/glie index $(SAMPLES) --to build/samples.glie
	@$(LIGHT)/bin/glie serve build/samples.glie

test: venv
	@command -v chromium chromium-browser > /dev/null \
		|| echo "Chromium not found: browser tests are skipped (apt-get install chromium)"
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 --dist loadfile

lint: venv
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/mypy

# Ends with one table of all ratios, which docs/performance.md shows
bench: export GLIE_BENCH := $(CURDIR)/build/bench.jsonl
bench: venv
	@$(BIN)/$(INSTALL) --editable '.[bench]'
	@mkdir -p build && rm -f $(GLIE_BENCH)
	$(BIN)/python benchmarks/start.py
	$(BIN)/python benchmarks/compress.py
	$(BIN)/python benchmarks/encode.py english minilm
	$(BIN)/python benchmarks/ingest.py
	$(BIN)/python benchmarks/search.py
	$(BIN)/python benchmarks/limits.py
	$(BIN)/python benchmarks/rerank.py
	$(BIN)/python benchmarks/rerank.py --bytes-per-page 520 --shortlist 200
	$(BIN)/python benchmarks/filters.py
	$(BIN)/python benchmarks/fit.py
	$(BIN)/python benchmarks/million.py --bytes-per-page 520 --pages 10000,100000,200000 --asked 60
	$(BIN)/python benchmarks/hybrid.py --pages 20000
	$(BIN)/python benchmarks/serve.py
	@$(BIN)/python tools/figures.py bench $(GLIE_BENCH)

# The figures of docs/reliability.md; takes about two hours
trust: venv
	$(BIN)/python tools/faults.py --kills 500
	$(BIN)/python tools/fuzz.py --count 20000
	@$(BIN)/$(INSTALL) --editable '.[fuzz]'
	$(BIN)/python tools/fuzz_format.py --seconds 900
	$(BIN)/python tools/stress.py --seconds 60
	$(BIN)/python tools/soak.py --seconds 3600

wheel: venv
	@rm -rf build/wheel build/clean
	@$(BIN)/pip wheel $(QUIET) --no-deps --build-constraint $(PINS) --wheel-dir build/wheel .
	@$(PYTHON) -m venv build/clean && $(call pinned-pip,build/clean) \
		&& build/clean/bin/$(INSTALL) build/wheel/glie-*.whl
	@build/clean/bin/python -P tools/try_wheel.py build/wheel/glie-*.whl
	@build/clean/bin/$(INSTALL) "$$(echo build/wheel/glie-*.whl)[cli]"
	@build/clean/bin/python -P tools/try_wheel.py build/wheel/glie-*.whl --cli
	@$(BIN)/$(INSTALL) uv
	@PATH=$(BIN):$$PATH $(BIN)/python tools/try_metadata.py build/wheel/glie-*.whl

image: venv
	@$(BIN)/python tools/try_image.py

# The documentation site; --strict: a link that leads nowhere is an error
docs: venv
	@$(BIN)/$(INSTALL) --editable '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "built build/site; look at it: $(BIN)/mkdocs serve"

# The Dockerfile, compose files and workflows, by linters of their own
lint-deploy: LINT := build/lint
lint-deploy:
	@test -x $(LINT)/bin/hadolint || { $(PYTHON) -m venv $(LINT) \
		&& $(LINT)/bin/pip install $(QUIET) --only-binary :all: --requirement deploy/lint.txt; }
	$(LINT)/bin/hadolint Dockerfile
	$(LINT)/bin/check-jsonschema --builtin-schema vendor.compose-spec deploy/compose*.yaml
	$(LINT)/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(LINT)/bin/zizmor --offline --quiet .github/workflows

# Upgrade to the newest versions: make lock UPGRADE=--upgrade
lock: venv
	@$(BIN)/$(INSTALL) uv
	@PATH=$(BIN):$$PATH $(BIN)/python tools/lock.py $(UPGRADE)

licences: venv
	@$(BIN)/python tools/licences.py

# The shipped codec: make codec SETS=PAIRS, made by tools/encoder_pairs.py
codec: venv
	OMP_NUM_THREADS=1 $(BIN)/glie fit $(SETS) --k 2,4,8,16,32,64 --epochs 3 --to src/glie/codec/shipped/english

# The pictures of docs/serve.md (needs Chromium; run `make run` first)
screenshot: venv
	$(BIN)/python tools/screenshot.py

clean:
	rm -rf .venv $(LIGHT) build
