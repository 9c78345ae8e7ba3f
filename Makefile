# make run, make test, make test-all: everything from a bare clone. make lab opens the lessons. Without make: python course.py run, test, lab.
PYTHON ?= python3
BIN := .venv/bin
# Byte code is written when a module is first imported, most of what is installed never is; whoever has told Python not to write
# any would wait for the compiler in every kernel of a lesson.
unexport PYTHONDONTWRITEBYTECODE
PIP_INSTALL := -m pip install -qq --no-compile --disable-pip-version-check
SETS := oldest middle colab newest

.PHONY: run lab test test-all wheel notebooks record test-matrix $(SETS:%=test-%) figures experiments confidence clinic serving beyond production gpu judges drafts \
  engine release grade slides exam project fork site test-site
.DELETE_ON_ERROR:

run:
	$(PYTHON) course.py run $(ARGS)

lab:
	$(PYTHON) course.py lab $(ARGS)

test test-all:
	$(PYTHON) course.py $@

# What somebody gets who installs this: `pip install .` into an empty environment, then the demo, away from the repository.
wheel:
	rm -rf build/lib build/wheel
	$(PYTHON) -m venv build/wheel/environment
	build/wheel/environment/bin/python $(PIP_INSTALL) . -c constraints.txt
	cd build/wheel && environment/bin/dspark-lite demo

# From notebooks/src to notebooks/ and notebooks/solutions/, executed, and the table in README.md.
notebooks: .venv/course.stamp
	$(BIN)/python scripts/notebooks.py build
	$(BIN)/python scripts/readme.py

# Measure the lessons' minutes on this machine; `make notebooks` then writes them into headers and table.
record: .venv/course.stamp
	$(BIN)/python scripts/run_course.py --record

# Every figure and table of the paper in lessons 06, 09, 11 and 12, from assets/measurements, in a minute or two.
figures: .venv/course.stamp
	$(BIN)/python scripts/figures.py

# Train every drafter of the next world's studies from its recipe and measure it: days. A stopped run goes on.
experiments: .venv/course.stamp
	$(BIN)/python scripts/experiments.py

# Calibration, threshold sweep and cost table of the tiny models, which lessons 09 and 10 show: half an hour.
confidence: .venv/course.stamp
	$(BIN)/python scripts/confidence.py

# The charts of lesson 14's patients on the tiny models, after `make confidence`: two minutes.
clinic: .venv/course.stamp
	$(BIN)/python scripts/clinic.py

# The serving engine on the tiny models at 1 to 64 requests, which lesson 11 shows: forty minutes.
serving: .venv/course.stamp
	$(BIN)/python scripts/serving.py

# Block verification and the acceptance estimator beside the paper's rule and head, on the tiny models: minutes.
beyond: .venv/course.stamp
	$(BIN)/python scripts/beyond.py

# V4's draft in miniature, heads and trees beside lesson 13, trained and measured on the tiny models: half an hour. A stopped run goes on.
production: .venv/course.stamp
	$(BIN)/python scripts/production.py

# What the course says of a GPU, measured on one without a download; unattended, and a stopped run goes on. ARGS=--small tries
# all of it out on small shapes, on a CPU too.
gpu: .venv/tests.stamp
	$(BIN)/python -m tools.gpu.gpu $(ARGS)

# Programs that nobody here wrote, asked whether they agree; each in an environment of its own in build/environments.
judges: .venv/course.stamp
	$(BIN)/python -m tools.judges.judges $(ARGS); told=$$?; $(BIN)/python scripts/readme.py; exit $$told

# Every form of draft loaded and compared with the drafter it holds, and what inspect fetches of released ones: minutes, and a
# stopped run goes on.
drafts: .venv/tests.stamp
	$(BIN)/python -m tools.drafts $(ARGS)
	$(BIN)/python scripts/readme.py

# vLLM's server on this machine, asked by the ordinary OpenAI client. No GPU is needed, minutes are.
engine: .venv/course.stamp
	$(BIN)/python -m tools.engine.engine $(ARGS)

# For instructors, see teaching/README.md. make release writes the student edition, make slides the lessons' figures as slides; make grade
# ARGS="FOLDER --csv marks.csv" marks what was handed in, make exam ARGS="--seed N" writes an exam, make project ARGS="policy FILE" judges a
# project; make fork OWNER/NAME gives badges, links and setup cells another repository.
release grade slides exam project:
	$(PYTHON) course.py $@ $(ARGS)

fork:
	$(PYTHON) course.py fork $(filter-out fork,$(MAKECMDGOALS))

ifeq (fork,$(firstword $(MAKECMDGOALS)))
.PHONY: $(filter-out fork,$(MAKECMDGOALS))
$(filter-out fork,$(MAKECMDGOALS)): ; @:
endif

# The web edition, from the committed notebooks to build/site/html, offline: a minute or two.
site: .venv/site.stamp
	$(BIN)/python -m tools.site.build

# Every page of it in a real Chromium, which Debian's or Ubuntu's package brings where there is none; pictures of all to
# build/site/screenshots.
test-site: site .venv/tests.stamp
	@which chromium chromium-browser google-chrome | grep -q . || (apt-get update -qq && apt-get install -y -qq chromium)
	$(BIN)/python -m pytest tests/site_in_browser.py $(ARGS)

# The sets of versions that readers have: Colab's pinned runtimes (the oldest and the middle), its current one, and the
# newest that the package index has. `make test-colab PYTHON=python3.13` has Colab's Python, too.
test-matrix: $(SETS:%=test-%)

$(SETS:%=test-%): test-%: .venv-%/tests.stamp
	$(if $(filter newest,$*),.venv-$*/bin/python $(PIP_INSTALL) --upgrade transformers datasets -c .venv-$*/constraints.txt)
	.venv-$*/bin/python -m pip list 2>/dev/null | grep -E '^(torch|transformers|huggingface_hub|datasets|numpy|matplotlib|ipywidgets) '
	.venv-$*/bin/python course.py test

.venv/course.stamp: pyproject.toml requirements.txt constraints.txt
	$(PYTHON) course.py install

.venv/tests.stamp: requirements-dev.txt .venv/course.stamp
	$(PYTHON) course.py install tests

.venv/site.stamp: requirements-site.txt .venv/course.stamp
	$(BIN)/python $(PIP_INSTALL) -r requirements-site.txt -c constraints.txt
	touch $@

# What constraints-SET.txt names goes before the pins of constraints.txt.
.venv-%/tests.stamp: pyproject.toml requirements.txt requirements-dev.txt constraints.txt constraints-%.txt
	$(PYTHON) -m venv .venv-$*
	awk -F '[=<>]' 'NR == FNR {named[$$1]} NR == FNR || !($$1 in named)' constraints-$*.txt constraints.txt > .venv-$*/constraints.txt
	.venv-$*/bin/python $(PIP_INSTALL) -e . -r requirements-dev.txt -c .venv-$*/constraints.txt
	touch $@
