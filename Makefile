# `make run` and `make test` do everything from a fresh clone: set-up in .venv, build, then the job.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.setup
CLIENTS := $(VENV)/clients
DISCOVER := $(VENV)/discover
SITE := "import sysconfig; print(sysconfig.get_path('purelib'))"
export OMP_NUM_THREADS ?= 1
export OMP_WAIT_POLICY ?= PASSIVE
# Containers set it. Every process of the tests would then compile all modules again, which takes seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup run study house test test-all check docs recipe clients discover sanitize format stubs fields bench storm fuzz mutants stacks kernel ui playground playground-bench clean FORCE

# Other targets need it, too, and have a last line of their own.
NEXT := "Done. Next: . $(BIN)/activate && bbrgym simulate bbr cubic --rtt 10,50 --plot first.png"
setup: $(SETUP)
	@$(if $(filter setup,$(MAKECMDGOALS)),echo $(NEXT),:)

# ns3 without its dependencies, which only its own Python bindings need and which take minutes to compile.
$(SETUP): $(VENV)/pyvenv.cfg pyproject.toml constraints.txt CMakeLists.txt src/hash_sources.py $(shell find baselines/cc envs ns3_scratch tests/cc -name '*.cc' -o -name '*.[ch]' -o -name '*.def')
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "pip>=25.1"
	$(BIN)/python -m pip install --quiet --no-deps --constraint constraints.txt ns3
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation \
	  --config-settings=cmake.define.BBRGYM_TESTING=ON --editable '.[all]'
	touch $(SETUP)

# An environment of a supported Python, and of the one in PYTHON if the command line or the shell's environment names it.
$(VENV)/pyvenv.cfg: FORCE
	@.ci/make_venv $(VENV) "$(PYTHON)" $(if $(filter-out file,$(origin PYTHON)),given)

run: setup
	$(BIN)/bbrgym demo

test: setup
	$(BIN)/python -m pytest

# With the tests marked slow.
test-all: setup
	$(BIN)/python -m pytest -m ''

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy studies
	$(BIN)/mypy docs/site
	$(BIN)/python -m nbstripout --verify notebooks/*.ipynb
	find baselines/cc envs ns3_scratch tests -name '*.h' -o -name '*.cc' | xargs $(BIN)/clang-format --dry-run --Werror
	$(BIN)/lint-imports
	$(BIN)/python tests/check_includes.py
	$(BIN)/python tests/write_stubs.py --check
	$(BIN)/python tests/write_fields.py --check
	$(BIN)/python -m studies.addresses
	$(MAKE) docs ARGS=--quick

# The documentation site, in build/docs/site; any bad link is an error. ARGS=--quick: without
# pictures of ids, and notebooks do not run; half a minute.
docs: setup
	PYTHONPATH=. $(BIN)/python docs/site/build.py $(ARGS)

# CONTRIBUTING.md's example of a new algorithm, in a clean copy.
recipe: setup
	$(BIN)/python tests/recipe.py

# Every recipe of docs/recipes.md, and the table at the page's end.
clients: $(CLIENTS)/.setup
	mkdir -p build
	PATH="$(CURDIR)/$(BIN):$$PATH" $(CLIENTS)/bin/python -m pytest -m '' --junitxml=build/recipes.xml tests/recipes; \
	  status=$$?; PYTHONPATH=. $(CLIENTS)/bin/python tests/recipes/write_clients.py build/recipes.xml && exit $$status

# The libraries of docs/discover.md, with a scripted model.
discover: $(DISCOVER)/.setup
	$(DISCOVER)/bin/python -m pytest -n 0 -m '' tests/unit/test_discover.py

# Environments on top of $(VENV): RLlib requires another version of Gymnasium, Tianshou of pandas, Zoo of Pillow.
$(CLIENTS)/.setup $(DISCOVER)/.setup: $(VENV)/%/.setup: $(SETUP) tests/recipes/constraints.txt
	$(BIN)/python -m venv $(@D)
	echo "import site; site.addsitedir('$$($(BIN)/python -c $(SITE))')" > "$$($(@D)/bin/python -c $(SITE))/base.pth"
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check "pip>=25.1"
	$(@D)/bin/python -m pip install --quiet --constraint tests/recipes/constraints.txt --group $*
	touch $@

# One program built three times: with two sanitizers, and with a pattern in uninitialised memory. All print the same sum.
SOURCES := baselines/cc baselines/cc/policy envs/model envs/transport envs/native
STRESS := tests/cc/native_stress.cc $(filter-out %/module.cc,$(wildcard $(SOURCES:%=%/*.cc)))
build/stress-address: SANITIZE := -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all
build/stress-thread: SANITIZE := -fsanitize=thread
build/stress-pattern: SANITIZE := -ftrivial-auto-var-init=pattern
build/stress-%: $(SETUP) $(STRESS) $(wildcard envs/*.def) $(wildcard $(SOURCES:%=%/*.h) $(SOURCES:%=%/*.def))
	mkdir -p build
	g++ -std=c++20 -O1 -g1 -ffp-contract=off -D_GLIBCXX_ASSERTIONS $(SANITIZE) -pthread \
	  -I. -I$$(ls -d build/*/generated | head -1) -o $@ $(STRESS)

sanitize:
	$(MAKE) --jobs=2 build/stress-address build/stress-thread build/stress-pattern
	for build in address thread pattern; do \
	  MALLOC_PERTURB_=165 build/stress-$$build > build/stress-$$build.sum || exit; \
	done
	cmp build/stress-address.sum build/stress-thread.sum
	cmp build/stress-address.sum build/stress-pattern.sum

# Long runs with random numbers of their own (tests/stress). ARGS has more arguments; they print their seed.
storm: setup
	PYTHONPATH=tests $(BIN)/python -m stress.storm $(ARGS)

# More damaged input than `make test` gives.
FUZZ ?= 20
fuzz: setup
	FUZZ=$(FUZZ) $(BIN)/python -m pytest -m '' tests/unit/test_stress.py -k survives_damaged

mutants: setup
	PATH=$(abspath $(BIN)):$$PATH PYTHONPATH=tests $(BIN)/python -m stress.mutants $(ARGS)

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	find baselines/cc envs ns3_scratch tests -name '*.h' -o -name '*.cc' | xargs $(BIN)/clang-format -i

stubs: setup
	$(BIN)/python tests/write_stubs.py

# What the docstrings of Scenario and Flow say about the fields of envs/scenario.def.
fields: setup
	$(BIN)/python tests/write_fields.py

bench: setup
	$(BIN)/python -m studies.speed

# A policy in the kernel's TCP, in real time and as root (docs/kernel.md): three quarters of an hour.
kernel: setup
	$(BIN)/python -m studies.kernel --write docs/kernel.md

# Other people's stacks that are installed, in real time (docs/stacks.md): six minutes.
stacks: setup
	$(BIN)/python -m studies.stacks --write docs/stacks.md
	$(BIN)/python -m studies.stacks.long_rtt --write docs/stacks.md

# The pages of docs/results: STUDY=queues, or all of them. What is measured by this code is not measured again.
STUDY ?= all
study: setup
	$(BIN)/python -m studies $(STUDY) --measure --write

# What one more of something costs, what must be read, and where lines and commits are.
house: setup
	$(BIN)/python tests/house.py $(ARGS)

ui: setup
	$(BIN)/bbrgym ui

# The page of docs/playground.md, with the native engine in WebAssembly. ziglang has clang, libc++ and a linker for it.
PLAYGROUND := build/playground
WASM := build/wasm
WASM_FLAGS := -target wasm32-wasi -std=c++20 -O3 -flto -ffp-contract=off -DNDEBUG
WASM_CODE := $(filter-out %/module.cc,$(wildcard $(addsuffix /*.cc,baselines/cc baselines/cc/policy envs/model envs/transport))) \
  envs/native/network.cc envs/wasm/api.cc
ZIG = $(BIN)/python -m ziglang c++ $(WASM_FLAGS)
export ZIG_GLOBAL_CACHE_DIR := $(CURDIR)/$(WASM)/cache

playground: $(PLAYGROUND)/engine.wasm
	$(BIN)/python -m studies.playground --build $(PLAYGROUND)

playground-bench: playground
	$(BIN)/python -m studies.playground $(ARGS)

$(WASM)/.setup: $(SETUP)
	mkdir -p $(WASM) $(PLAYGROUND)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --group playground
	touch $@

# Code that runs once per page, and not per packet, is compiled for size.
$(addprefix $(WASM)/,$(addsuffix .o,baselines/cc/controller_file baselines/cc/parameters baselines/cc/policy/features envs/wasm/api)): \
  WASM_FLAGS += -Oz

$(WASM)/%.o: %.cc | $(WASM)/.setup
	@mkdir -p $(@D)
	@echo compile $<
	@$(ZIG) -fexceptions -MMD -I. -I$$(ls -d build/*/generated | head -1) -c $< -o $@

$(PLAYGROUND)/engine.wasm: $(WASM_CODE:%.cc=$(WASM)/%.o)
	@echo link $@
	@$(ZIG) -mexec-model=reactor -s $^ -o $@

-include $(WASM_CODE:%.cc=$(WASM)/%.d)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
