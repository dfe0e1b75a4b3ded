# Each target creates its own virtual environment with pip and needs nothing else: `make demo`, `make test`.
PYTHON ?= python3
PIP = bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Two test processes run at once. torch and scikit-learn get one core each; otherwise their threads compete.
ONE_EACH = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=2

.PHONY: demo test lint bench bench-scale advisor calibration calibration-full calibration-audit regularizers regularizer-weights collapse-calibration estimators studies structure golden mutants clean

demo: .venv-demo/done
	.venv-demo/bin/isoscope demo

test: .venv-test/done
	.venv-test/bin/ruff check .
	.venv-test/bin/ruff format --check .
	.venv-test/bin/mypy
	$(ONE_EACH) .venv-test/bin/python -m pytest -n 2 --dist loadgroup --durations 30

lint: .venv-test/done
	.venv-test/bin/ruff check --fix .
	.venv-test/bin/ruff format .
	.venv-test/bin/mypy

# Print import cycles, import order, size, the path of one audit, shared module names and undocumented public names.
structure: .venv-test/done
	.venv-test/bin/python tools/structure.py

# Fixed calls compared bit by bit with tools/golden.json, which belongs to one machine (about a minute).
golden: .venv-test/done
	.venv-test/bin/python tools/golden.py

# 120 small faults in the source, one at a time, against the tests of their modules (about an hour on 2 idle cores).
# Rerun it to resume.
mutants: .venv-test/done
	$(ONE_EACH) .venv-test/bin/python tools/mutants.py

# Every performance target next to its peer, in one run (about 40 minutes); writes the tables in docs/performance.md.
bench: .venv-bench/done
	.venv-bench/bin/python benchmarks/bench.py --page docs/performance.md
	.venv-bench/bin/python benchmarks/audits.py --page docs/performance.md
	.venv-bench/bin/python benchmarks/repairs.py --page docs/performance.md
	.venv-bench/bin/python benchmarks/applying.py --page docs/performance.md
	.venv-bench/bin/python benchmarks/training.py --page docs/performance.md
	.venv-bench/bin/python benchmarks/embedding.py --page docs/performance.md
	.venv-bench/bin/python benchmarks/studies.py --page docs/performance.md

# Rows from 1e5 to 1e7, one and two workers (half an hour, 9 GB of disk); writes the tables in docs/scale.md.
bench-scale: .venv-bench/done .venv-test/done
	.venv-bench/bin/python benchmarks/scale.py --page docs/scale.md
	.venv-test/bin/python -m pytest -m heavy tests

# False prescriptions, power and delivered gains of the advisor (an hour on 2 idle cores); writes the tables in
# docs/advisor.md. Rerun it to resume.
# make calibration RUNS=folder [DATA=vectors made by make advisor]
calibration: .venv-bench/done
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 .venv-bench/bin/python benchmarks/calibration.py $(RUNS) $(if $(DATA),--data $(DATA)) --page docs/advisor.md

calibration-full: .venv-bench/done
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 .venv-bench/bin/python benchmarks/calibration.py $(RUNS) $(if $(DATA),--data $(DATA)) --full

# The advisor on real models and data sets (an hour, most of it embedding); writes the tables in docs/advisor.md.
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

# False alarms and power of the audit's null tests (about an hour); writes the tables in docs/findings.md.
calibration-audit: .venv-bench/done
	.venv-bench/bin/python benchmarks/audit_calibration.py --page docs/findings.md

# Writes docs/studies.md, the pages and results.json in docs/studies/ from runs of `isoscope study run NAME -o RUNS/NAME`;
# make studies RUNS=folder
studies: .venv-bench/done
	.venv-bench/bin/python benchmarks/study_pages.py $(RUNS)

.venv-demo/done: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-demo
	.venv-demo/$(PIP) --editable .
	touch $@

.venv-test/done: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-test
	.venv-test/$(PIP) --editable '.[test,lint]'
	touch $@

.venv-bench/done: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/$(PIP) --editable '.[bench]'
	touch $@

clean:
	rm -rf .venv-demo .venv-test .venv-bench
