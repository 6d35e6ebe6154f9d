# Every target sets up its own .venv; nothing has to be installed by hand.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
INSTALL := -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
PIP    := $(BIN)/python $(INSTALL)

.PHONY: setup demo example notebook quick test proofs reliability reliability-nightly check frames test-adapters test-scale bench bench-scale memory experiments leaderboard confirmation clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit(0 if sys.version_info >= (3, 11) else 'wdistill needs Python 3.11 or newer: make PYTHON=python3.11')"
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[test,demo]'
	touch $@

$(VENV)/.bench: $(VENV)/.ready
	$(PIP) --editable '.[bench]'
	touch $@

demo: setup
	$(BIN)/wdistill demo --run demo

$(VENV)/.example: $(VENV)/.ready
	$(PIP) --editable '.[example]'
	touch $@

$(VENV)/.notebook: $(VENV)/.ready
	$(PIP) --editable '.[notebook]'
	touch $@

# a zero-shot model's answers on real film reviews, from their forms to a student
example: $(VENV)/.example
	$(BIN)/python examples/llm_labels.py

# the example as script and notebook, on made-up reviews
notebook: $(VENV)/.notebook
	$(BIN)/python -m pytest tests/test_llm_labels.py

# the unit tests: no training, no browser, no killed processes
quick: setup
	HYPOTHESIS_PROFILE=quick $(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow and not browser and not kill and not proof and not frames"

test: check
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not proof and not frames"

# what takes long: every item of `reproduce`, odd environments, flips of every bit, a run killed at every operation on the disk
proofs: setup
	$(BIN)/python -m pytest -n 2 --dist load -m proof
	$(BIN)/python -m tests.killing

# faults, damage and hostile files, goal by goal; docs/reliability.md shows what was proved
reliability: setup
	$(BIN)/python -m tests.reliability

# all of it, for hours; started again, it goes on where it was stopped
reliability-nightly: setup
	$(BIN)/python -m tests.reliability --nightly

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# frames of pandas, polars and Hugging Face, in a small .venv of their own: without torch, and `make test` without them
FRAMES := .venv-frames

$(FRAMES)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(FRAMES)
	$(FRAMES)/bin/python $(INSTALL) --editable '.[frames,methods]' pytest hypothesis
	touch $@

frames: $(FRAMES)/.ready
	$(FRAMES)/bin/python -m pytest -m frames tests/test_frames.py

$(VENV)/.adapters: $(VENV)/.ready
	$(PIP) --editable '.[adapters]'
	touch $@

# students in other people's trainers: scikit-learn, LightGBM, XGBoost, Hugging Face, Lightning, Keras, skorch …
test-adapters: $(VENV)/.adapters
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/adapters

$(VENV)/.scale: $(VENV)/.ready
	$(PIP) --editable '.[scale]'
	touch $@

# Ray, Spark (it needs Java 17), a store of objects, and students on several processes: all without any network
test-scale: $(VENV)/.scale
	$(BIN)/python -m tests.scale.alone $(BIN)/python -m pytest tests/scale

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks.weigh
	$(BIN)/python -m benchmarks.distill
	$(BIN)/python -m benchmarks.advise
	$(BIN)/python -m benchmarks.text
	$(BIN)/python -m benchmarks.answers

# what a million rows cost against bare passes, what engines and processes cost besides: half an hour, 12 GB of disk
bench-scale: $(VENV)/.scale
	$(BIN)/python -m benchmarks.scale
	$(BIN)/python -m tests.scale.alone $(BIN)/python -m benchmarks.scale --engines
	$(BIN)/python -m tests.scale.alone $(BIN)/python -m benchmarks.ranks
	$(BIN)/python -m benchmarks.partitions
	$(BIN)/python -m benchmarks.billion

memory: setup
	$(BIN)/python -m benchmarks.memory

# the budget of experiments/README.md: some 20 core-hours, resumable; the data sets must be prepared
PAPER_MODELS := --labels 7500 --trials 3 --epochs 8 --pretraining 20 --unlabeled 5000 --test 5000 \
	--arms unweighted,debiased,oracle,shuffled

experiments: setup
	$(BIN)/wdistill reproduce small-fashion small-cifar10 small-svhn --workers 2
	$(BIN)/wdistill reproduce cifar10 svhn $(PAPER_MODELS) --workers 2
	$(BIN)/wdistill reproduce small-celeba small-temperature --workers 2

# 14 tasks, three sizes of the gold set, five trials each: resumable; the data sets must be prepared
leaderboard: setup
	$(BIN)/python -m experiments.leaderboard --workers 2

# 13 tasks, two or three sizes of the gold set, eight trials each: best against its rivals, and its forecast; resumable
confirmation: setup
	$(BIN)/python -m experiments.confirmation --workers 2

clean:
	rm -rf $(VENV) $(FRAMES) demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
