# Each target creates its own virtual environment with pip and needs nothing else: `make demo`, `make test`.
PYTHON ?= python3
PIP = bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Several test processes run at once. torch and scikit-learn get one core each; otherwise their threads compete. Bytecode is
# written even if PYTHONDONTWRITEBYTECODE is set: without it, each worker compiles all tests again in every run.
ONE_EACH = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=2 PYTHONDONTWRITEBYTECODE=

.PHONY: demo test test-lowest test-nightly lint bench bench-scale advisor calibration calibration-full calibration-audit calibration-rows calibration-threshold calibration-same calibration-compress registry regularizers regularizer-weights collapse-calibration estimators studies structure notebooks check-notebooks golden mutants gallery lighthouse stress dist check-workflows coverage docs docs-serve clean

demo: .venv-demo/done
	.venv-demo/bin/isoscope demo

# mypy runs beside the tests; if it finds errors, they are printed last. Without WORKERS, the load of the machine and its
# free memory set the number of test processes: two to six. make test [WORKERS=4]
WORKERS = $(shell $(PYTHON) tools/workers.py || echo 2)
test: .venv-test/done
	.venv-test/bin/ruff check .
	.venv-test/bin/ruff format --check .
	@mkdir -p out; .venv-test/bin/mypy > out/mypy.txt 2>&1 & mypy=$$!; \
	$(ONE_EACH) .venv-test/bin/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder --durations 30; status=$$?; \
	wait $$mypy || { status=$$?; echo "mypy failed:"; cat out/mypy.txt; }; \
	exit $$status

# Damaged files, tampered results, kills, limits and hostile input (about 20 minutes); prints tried and failed for each.
# make stress [SEED=1]
SEED = 0
stress: .venv-test/done
	@status=0; \
	.venv-test/bin/python tools/stress/mutate_files.py --count 100 --seed $(SEED) || status=1; \
	.venv-test/bin/python tools/stress/mutate_saved.py --count 40 --seed $(SEED) || status=1; \
	.venv-test/bin/python tools/stress/disturb.py --seed $(SEED) || status=1; \
	exit $$status

# Tests with the lowest versions that pyproject.toml allows (see CONTRIBUTING.md; about 10 minutes on 2 idle cores).
# torch is 2.13.0 from constraints.txt, because other versions install several GB of GPU libraries.
# make test-lowest [PYTHON=python3.12]
LOWEST_PYTHON := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
LOWEST = .venv-lowest/$(LOWEST_PYTHON)
LOWEST_TESTS = $(addprefix tests/,core io metrics stores engines transforms/test_export.py auditing/test_schema.py \
  report/test_figures.py cli/test_main.py embedding training/test_trainers.py training/test_callbacks.py)
WITH_TORCH = $(filter 3.11,$(LOWEST_PYTHON))

test-lowest: $(LOWEST)/plain/done $(LOWEST)/extras/done $(if $(WITH_TORCH),$(LOWEST)/sentences/done)
	$(LOWEST)/plain/bin/pip install --quiet --disable-pip-version-check --no-deps --force-reinstall .
	$(LOWEST)/plain/bin/isoscope demo --html $(LOWEST)/plain/demo.html
	$(LOWEST)/plain/bin/python -m pytest tests/test_plain_install.py
	$(ONE_EACH) $(LOWEST)/extras/bin/python -m pytest -n 2 --dist loadgroup $(LOWEST_TESTS)
	$(if $(WITH_TORCH),$(ONE_EACH) $(LOWEST)/sentences/bin/python -m pytest -n 2 --dist loadgroup \
	  tests/embedding tests/training/test_cached_losses.py tests/transforms/test_export.py)

# Hypothesis with random examples, then the tests that use random numbers with other seeds (about 20 minutes). A failure
# names its example or seed; ISOSCOPE_TEST_SEED=N repeats it. make test-nightly [SEEDS="1 2 3"]
SEEDS = $(shell $(PYTHON) -c 'import random; print(*random.sample(range(2**31), 5))')

test-nightly: .venv-test/done
	$(ONE_EACH) .venv-test/bin/python -m pytest -n 2 --dist loadgroup -m 'hypothesis and not heavy' \
	  --hypothesis-profile nightly tests
	for seed in $(SEEDS); do echo "ISOSCOPE_TEST_SEED=$$seed"; ISOSCOPE_TEST_SEED=$$seed $(ONE_EACH) \
	  .venv-test/bin/python -m pytest -n 2 --dist loadgroup -m 'seeded and not hypothesis and not heavy' tests || exit; done

lint: .venv-test/done
	.venv-test/bin/ruff check --fix .
	.venv-test/bin/ruff format .
	.venv-test/bin/mypy

# Print import cycles, import order, size, the path of one audit, shared module names and undocumented public names.
structure: .venv-test/done
	.venv-test/bin/python tools/structure.py

# Runs the notebooks in docs/notebooks and stores their outputs (about a minute).
# make notebooks MODEL=folder of all-MiniLM-L6-v2
notebooks: .venv-test/done
	$(if $(MODEL),ISOSCOPE_MODEL=$(MODEL)) .venv-test/bin/python tools/notebooks.py

# Runs the notebooks and compares what they print with the stored outputs (half a minute).
check-notebooks: .venv-test/done
	$(ONE_EACH) .venv-test/bin/python -m pytest -m 'heavy or not heavy' tests/test_notebooks.py

# Fixed calls compared bit by bit with tools/golden.json, which belongs to one machine (about a minute).
golden: .venv-test/done
	.venv-test/bin/python tools/golden.py

# 120 small faults in the source, one at a time, against the tests of their modules (about an hour on 2 idle cores).
# Rerun it to resume.
mutants: .venv-test/done
	.venv-test/bin/python -m pytest -m heavy tests/test_mutants.py
	$(ONE_EACH) .venv-test/bin/python tools/mutants.py

# Every performance target next to its peer, in one run (about 30 minutes on 2 idle cores, 10 GB of disk); writes the
# tables in docs/performance.md. DATA replaces the packaged texts by those of CoLA and WikiText-2.
# make bench [DATA=folder with cola/train.tsv and wikitext2/valid.txt]
bench: .venv-bench/done
	.venv-bench/bin/python benchmarks/performance.py --page docs/performance.md $(if $(DATA),--data $(DATA))

# Rows from 1e5 to 1e7, one and two workers (half an hour, 9 GB of disk); writes the tables in docs/scale.md.
bench-scale: .venv-bench/done .venv-test/done
	.venv-bench/bin/python benchmarks/scale.py --page docs/scale.md
	.venv-test/bin/python -m pytest -m heavy tests

# False recommendations, power and delivered gains of the advisor (an hour on 2 idle cores); writes the tables in
# docs/advisor.md. Rerun it to resume.
# make calibration RUNS=folder [DATA=vectors made by make advisor]
calibration: .venv-bench/done
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 .venv-bench/bin/python benchmarks/calibration.py $(RUNS) $(if $(DATA),--data $(DATA)) --page docs/advisor.md

calibration-full: .venv-bench/done
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 .venv-bench/bin/python benchmarks/calibration.py $(RUNS) $(if $(DATA),--data $(DATA)) --full

# The advisor on real models and datasets (an hour, most of it embedding); writes the tables in docs/advisor.md.
# make advisor DATA=folder MODELS=folder VECTORS=folder
advisor: .venv-bench/done
	.venv-bench/bin/python benchmarks/advisor_data.py $(DATA) $(MODELS) $(VECTORS)
	.venv-bench/bin/python benchmarks/advisor.py $(VECTORS) --page docs/advisor.md

# The regularizers on a real model and CoLA, seven arms of three seeds (an hour); writes the table in docs/training.md.
# make regularizers DATA=folder MODEL=folder RUNS=folder
regularizers: .venv-bench/done
	.venv-bench/bin/python benchmarks/regularizers.py $(DATA) $(MODEL) $(RUNS) --page docs/training.md

# Every regularizer with three weights on two tasks and two models, three seeds (half an hour on 2 idle cores); writes the
# table in docs/training.md. Rerun it to resume.
# make regularizer-weights DATA=folder MODELS=folder RUNS=folder
regularizer-weights: .venv-bench/done
	.venv-bench/bin/python benchmarks/regularizer_weights.py $(DATA) $(MODELS) $(RUNS) --page docs/training.md

# False alarms and power of the collapse alarm on real trainings (15 minutes on 2 idle cores); writes the tables in
# docs/training.md. Rerun it to resume.
# make collapse-calibration DATA=folder MODELS=folder RUNS=folder
collapse-calibration: .venv-bench/done
	.venv-bench/bin/python benchmarks/collapse.py $(DATA) $(MODELS) $(RUNS) --page docs/training.md

# Bias, error and coverage of the estimators of IsoScore; writes the tables in docs/estimators.md (about 20 minutes).
# make estimators DATA=folder MODEL=folder
estimators: .venv-bench/done
	.venv-bench/bin/python benchmarks/estimators.py --page docs/estimators.md $(if $(MODEL),--data $(DATA) --model $(MODEL))

# False alarms and power of comparisons of two spaces; writes the tables in docs/same.md. Rerun it to resume.
# make calibration-same RUNS=folder DATA=folder of DATASET-MODEL.parquet files [NEW_DATA=folder of such files]
calibration-same: .venv-bench/done
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 .venv-bench/bin/python benchmarks/same_calibration.py $(RUNS) --data $(DATA) $(if $(NEW_DATA),--new-data $(NEW_DATA)) --page docs/same.md

# False alarms and power of the audit's null tests (about an hour); writes the tables in docs/findings.md.
calibration-audit: .venv-bench/done
	.venv-bench/bin/python benchmarks/audit_calibration.py --page docs/findings.md

# False alarms and power of the marks in the row table of an audit (half an hour); writes the tables in docs/rows.md.
# Rerun it to resume. make calibration-rows RUNS=folder [DATA=folder of vectors MODEL=folder of the encoder]
calibration-rows: .venv-bench/done
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 .venv-bench/bin/python benchmarks/rows_calibration.py $(RUNS) $(if $(DATA),--data $(DATA)) $(if $(MODEL),--model $(MODEL)) --page docs/rows.md

# Missed goals, noise and extrapolated rates of thresholds (half an hour on 2 idle cores); writes the tables in
# docs/threshold.md. Rerun it to resume.
# make calibration-threshold RUNS=folder [DATA=vectors]
calibration-threshold: .venv-bench/done
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 .venv-bench/bin/python benchmarks/threshold_calibration.py $(RUNS) $(if $(DATA),--data $(DATA)) --page docs/threshold.md

# Measures the sentence encoders of the registry again; fails if an entry differs by more than 1e-3 (about 5 minutes).
# make registry MODELS=folder
registry: .venv-bench/done
	.venv-bench/bin/python benchmarks/registry.py $(MODELS) --page docs/threshold.md

# How often compress keeps less than it promises (half an hour); writes the tables in docs/compress.md. Rerun it to resume.
# make calibration-compress RUNS=folder [DATA=vectors made by make advisor]
calibration-compress: .venv-bench/done
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 .venv-bench/bin/python benchmarks/compress_calibration.py $(RUNS) $(if $(DATA),--data $(DATA)) --page docs/compress.md

# Pages of the example vectors and their pictures in docs/gallery (about a minute; needs Chromium and poppler-utils).
# make gallery [STUDY=output folder of isoscope study run]
gallery: .venv-test/done
	.venv-test/bin/python tools/gallery.py $(if $(STUDY),--study $(STUDY))

# Lighthouse's accessibility score of the pages in docs/gallery, which must be 100 (needs npm and Chromium).
lighthouse: .venv-test/done
	npm install --silent --no-save --prefix out/lighthouse lighthouse@13
	.venv-test/bin/python tools/lighthouse.py out/lighthouse/node_modules/.bin/lighthouse

# Writes docs/studies.md, the pages and results.json in docs/studies/ from runs of `isoscope study run NAME -o RUNS/NAME`;
# make studies RUNS=folder
studies: .venv-bench/done
	.venv-bench/bin/python benchmarks/study_pages.py $(RUNS)

# The wheel and the source archive in out/dist; the demo and the tests of a plain installation run with the wheel.
dist: .venv-build/done
	rm -rf out/dist .venv-wheel
	.venv-build/bin/python -m build --outdir out/dist .
	.venv-build/bin/twine check --strict out/dist/*
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/$(PIP) out/dist/*.whl pytest pytest-timeout hypothesis
	cd out/dist && ../../.venv-wheel/bin/isoscope demo --html demo.html && rm demo.html
	.venv-wheel/bin/python -m pytest tests/test_plain_install.py

# Checks .github and action.yml against their schemas and known weaknesses of workflows.
check-workflows: .venv-build/done
	.venv-build/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(if $(wildcard action.yml),.venv-build/bin/check-jsonschema --builtin-schema vendor.github-actions action.yml)
	.venv-build/bin/zizmor --offline --quiet .github $(wildcard action.yml)

# The share of the lines of src/isoscope that the tests run (about twice the time of make test); the report is in
# out/coverage. Compiled kernels and separate processes are not counted.
coverage: .venv-test/done
	.venv-test/$(PIP) pytest-cov
	$(ONE_EACH) .venv-test/bin/python -m pytest -n 2 --dist loadgroup --cov isoscope --cov-report html:out/coverage --cov-report term

# The documentation site in out/docs/site, from docs/ and from the code; broken links and anchors fail. `make docs-serve`
# then serves it on http://localhost:8000.
docs: .venv-docs/done
	.venv-docs/bin/python -m tools.docs_site

docs-serve: .venv-docs/done
	.venv-docs/bin/python -m tools.docs_site --serve

.venv-build/done: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-build
	.venv-build/$(PIP) build twine check-jsonschema zizmor
	touch $@

.venv-demo/done: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-demo
	.venv-demo/$(PIP) --editable .
	touch $@

.venv-test/done: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-test
	.venv-test/$(PIP) --editable '.[test,lint]'
	touch $@

.venv-docs/done: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/$(PIP) --editable '.[docs]'
	touch $@

.venv-bench/done: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/$(PIP) --editable '.[bench]'
	touch $@

# Each environment of make test-lowest: its pins are generated from pyproject.toml.
LOWEST_FILES = pyproject.toml constraints.txt tools/lowest_versions.py
PIP_LOWEST = $(PIP) --only-binary :all: --constraint $(@D)/lowest.txt
define create_lowest
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/$(PIP) packaging
	$(@D)/bin/python tools/lowest_versions.py $(1) > $(@D)/lowest.txt
endef

$(LOWEST)/plain/done: $(LOWEST_FILES)
	$(call create_lowest,test-core)
	$(@D)/$(PIP_LOWEST) . pytest pytest-timeout hypothesis
	touch $@

$(LOWEST)/extras/done: $(LOWEST_FILES)
	$(call create_lowest,$(if $(WITH_TORCH),test-torch,test-core))
	$(@D)/$(PIP_LOWEST) --editable '.[$(if $(WITH_TORCH),test-torch,test-core)]'
	touch $@

$(LOWEST)/sentences/done: $(LOWEST_FILES)
	$(call create_lowest,test)
	$(@D)/$(PIP_LOWEST) --editable '.[sentence-transformers,train,onnx]' pytest pytest-timeout pytest-xdist hypothesis \
	  datasets onnxruntime
	touch $@

clean:
	rm -rf .venv-demo .venv-test .venv-docs .venv-bench .venv-lowest .venv-build .venv-wheel
