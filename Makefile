# make run, make test, make test-all: everything from a bare clone. make lab opens the lessons. Without make: python course.py run, test, lab.
PYTHON ?= python3
BIN := .venv/bin
# Byte code is written when a module is first imported, most of what is installed never is; whoever has told Python not to write
# any would wait for the compiler in every kernel of a lesson.
unexport PYTHONDONTWRITEBYTECODE
PIP_INSTALL := -m pip install -qq --no-compile --disable-pip-version-check
SETS := oldest middle colab newest

COMMANDS := run lab test test-all notebooks record figures experiments confidence clinic serving machines extensions production gpu judges drafts \
  site release grade slides exam project

.PHONY: $(COMMANDS) wheel fork test-matrix $(SETS:%=test-%) test-site

# course.py says what each does, installs what it needs and starts it. notebooks: from notebooks/src to notebooks/ and
# notebooks/solutions/, executed, and the tables in README.md and docs/. record: measure the lessons' minutes on this machine;
# `make notebooks` then writes them into headers and tables. gpu: ARGS=--small tries it out on narrow models, on a CPU too. For
# release, grade, slides, exam, project and fork see docs/teaching/README.md.
$(COMMANDS):
	$(PYTHON) course.py $@ $(ARGS)

# What somebody gets who installs this: `pip install .` into an empty environment, then the demo, away from the repository.
wheel:
	rm -rf build/lib build/wheel
	$(PYTHON) -m venv build/wheel/environment
	build/wheel/environment/bin/python $(PIP_INSTALL) . -c constraints/pins.txt
	cd build/wheel && environment/bin/dspark-lite demo

fork:
	$(PYTHON) course.py fork $(filter-out fork,$(MAKECMDGOALS)) $(ARGS)

ifeq (fork,$(firstword $(MAKECMDGOALS)))
.PHONY: $(filter-out fork,$(MAKECMDGOALS))
$(filter-out fork,$(MAKECMDGOALS)): ; @:
endif

# Every page of the web edition in a real Chromium; pictures of all to build/site/screenshots.
test-site: site
	@which chromium chromium-browser google-chrome | grep -q . || (echo "make test-site needs a Chromium: install chromium" >&2; exit 1)
	$(PYTHON) course.py install tests
	$(BIN)/python -m pytest tests/site_in_browser.py $(ARGS)

# The sets of versions that readers have: Colab's pinned runtimes (the oldest and the middle), its current one, and the
# newest that the package index has. `make test-colab PYTHON=python3.13` has Colab's Python, too.
test-matrix: $(SETS:%=test-%)

$(SETS:%=test-%): test-%:
	test -x .venv-$*/bin/python || $(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python course.py install tests
	$(if $(filter newest,$*),.venv-$*/bin/python $(PIP_INSTALL) --upgrade transformers datasets -c .venv-$*/constraints.txt)
	.venv-$*/bin/python -m pip list 2>/dev/null | grep -E '^(torch|transformers|huggingface_hub|datasets|numpy|matplotlib|ipywidgets) '
	.venv-$*/bin/python course.py test
