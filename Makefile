# make run, make test: everything from a bare clone. make lab opens the lessons.
PYTHON ?= python3
BIN := .venv/bin
# Byte code is written when a module is first imported: most of what is installed never is.
PIP_INSTALL := -m pip install -qq --no-compile --disable-pip-version-check
# A kernel's reply is lost once in a few hundred cells on a busy machine: a notebook, and nothing else, gets a second try.
NOTEBOOKS := --nbmake --nbmake-timeout=300 --reruns 1 --only-rerun NotebookFailedException
# The lessons with their solutions that tests/test_released_profile.py does not execute already. Without solutions, as
# readers get them, `make run` executes all.
SOLUTIONS := $(wildcard notebooks/solutions/07_* notebooks/solutions/09_* notebooks/solutions/1*_*)
# A file's tests stay on one worker, which then loads its models once.
PYTEST := -m pytest -n 2 --dist loadfile $(NOTEBOOKS) tests $(SOLUTIONS)

.PHONY: run lab test notebooks record test-matrix test-oldest test-newest figures experiments confidence serving beyond judges engine
.DELETE_ON_ERROR:

run: .venv/course.stamp
	$(BIN)/python scripts/run_course.py

lab: .venv/course.stamp
	$(BIN)/jupyter lab --LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb $(ARGS)

test: .venv/tests.stamp
	$(BIN)/python $(PYTEST)

# From notebooks/src to notebooks/ and notebooks/solutions/, executed, and the table in README.md.
notebooks: .venv/course.stamp
	$(BIN)/python scripts/notebooks.py build
	$(BIN)/python scripts/readme.py

# Measure the lessons' minutes on this machine; `make notebooks` then writes them into headers and table.
record: .venv/course.stamp
	$(BIN)/python scripts/run_course.py --record

# Every figure and table of lessons 06 and 12, from assets/measurements, in seconds.
figures: .venv/course.stamp
	$(BIN)/python scripts/figures.py

# Train every drafter of those figures from its recipe and measure it: hours. A stopped run goes on.
experiments: .venv/course.stamp
	$(BIN)/python scripts/experiments.py

# Calibration, threshold sweep and cost table of the tiny models, which lessons 09 and 10 show: half an hour.
confidence: .venv/course.stamp
	$(BIN)/python scripts/confidence.py

# The serving engine on the tiny models at 1 to 64 requests, which lesson 11 shows: forty minutes.
serving: .venv/course.stamp
	$(BIN)/python scripts/serving.py

# Block verification and the acceptance estimator beside the paper's rule and head, on the tiny models: minutes.
beyond: .venv/course.stamp
	$(BIN)/python scripts/beyond.py

# Programs that nobody here wrote, asked whether they agree; each in an environment of its own in build/environments.
judges: .venv/course.stamp
	$(BIN)/python scripts/judges.py $(ARGS)

# vLLM's server on this machine, asked by the ordinary OpenAI client. No GPU is needed, minutes are.
engine: .venv/course.stamp
	$(BIN)/python scripts/engine.py $(ARGS)

# The oldest supported transformers, and the newest that the package index has for this Python.
test-matrix: test-oldest test-newest

test-oldest: .venv-oldest/tests.stamp
	.venv-oldest/bin/python -c "import transformers; print('transformers', transformers.__version__)"
	.venv-oldest/bin/python $(PYTEST)

test-newest: .venv-newest/tests.stamp
	.venv-newest/bin/python $(PIP_INSTALL) --upgrade "transformers>=5.15" -c .venv-newest/constraints.txt
	.venv-newest/bin/python -c "import transformers; print('transformers', transformers.__version__)"
	.venv-newest/bin/python $(PYTEST)

.venv/course.stamp: requirements.txt constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 10) or sys.exit("Python 3.10 or newer is needed: make PYTHON=python3.11 ...")'
	@echo "Installing the requirements into .venv (about 1.5 GB on disk)"
	$(PYTHON) -m venv .venv
	$(BIN)/python $(PIP_INSTALL) -r requirements.txt -c constraints.txt
	touch $@

.venv/tests.stamp: requirements-dev.txt .venv/course.stamp
	$(BIN)/python $(PIP_INSTALL) -r requirements-dev.txt -c constraints.txt
	touch $@

# transformers brings its own tokenizers and huggingface_hub: their pins go with its pin, torch's stays.
.venv-%/tests.stamp: requirements.txt requirements-dev.txt constraints.txt
	$(PYTHON) -m venv .venv-$*
	grep -vE '^(transformers|tokenizers|huggingface_hub)==' constraints.txt > .venv-$*/constraints.txt
	.venv-$*/bin/python $(PIP_INSTALL) -r requirements-dev.txt -c .venv-$*/constraints.txt $(if $(filter oldest,$*),transformers==5.15.0)
	touch $@
