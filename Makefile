# What a newcomer types. Needs git, make and a compiler toolchain; the rest is installed where it is missing.
.PHONY: demo serve build test check bench sweep soak fuzz install clean deps

BUILD := build/release

demo: deps             ## install what is missing, build the program alone, ask the bundled model about a document
	@cmake --preset release $(CMAKE_FLAGS) >/dev/null
	@cmake --build --preset release --target winnow
	@tools/demo.sh $(BUILD)

serve: deps            ## the same up to the build, then an HTTP server on the bundled model; FLAGS="-m model.gguf --port 8081"
	@cmake --preset release $(CMAKE_FLAGS) >/dev/null
	@cmake --build --preset release --target winnow
	@$(BUILD)/winnow serve $(FLAGS)

test: build            ## the same up to the build, then all tests
	@ctest --preset release

build: deps            ## leaves the binary at build/release/winnow
	@cmake --preset release $(CMAKE_FLAGS) >/dev/null
	@cmake --build --preset release

deps:
	@tools/install_deps.sh

check: deps            ## rules that need no build: what a room includes, names, references and lines of documents, formatting
	@python3 tools/check_layers.py
	@python3 tools/check_std_includes.py
	@python3 tools/check_names.py
	@python3 tools/check_docs.py
	@tools/check_format.sh

sweep: deps            ## random sessions against what is promised; SEED=1 MINUTES=60 PRESET=release (asan: with sanitizers)
	@cmake --preset $(or $(PRESET),release) $(CMAKE_FLAGS) >/dev/null
	@cmake --build --preset $(or $(PRESET),release) --target winnow_sweep
	@build/$(or $(PRESET),release)/tests/winnow_sweep --seed $(or $(SEED),1) --minutes $(or $(MINUTES),60)

soak: deps             ## the server under sanitizers: REQUESTS=100000 of all kinds, or as many as fit into SECONDS; SEED=1 KILLS=200 MUTATIONS=1000000 PRESET=asan (tsan, release)
	@cmake --preset $(or $(PRESET),asan) $(CMAKE_FLAGS) >/dev/null
	@cmake --build --preset $(or $(PRESET),asan) --target winnow make_tiny_model winnow_session_mutations
	@tests/server/soak.sh build/$(or $(PRESET),asan) $(or $(REQUESTS),100000) $(or $(SECONDS),0) $(or $(SEED),1) $(or $(KILLS),200) $(or $(MUTATIONS),1000000)

bench: build           ## speed against llama.cpp (installs llama-cpp-python from PyPI into build/); BENCH=quick: under 8 minutes
	@bench/llama_cpp/run.sh $(BUILD)/winnow --out build/bench $(if $(filter quick,$(BENCH)),--quick)

fuzz:                  ## every fuzz target for MINUTES (10), two at a time (needs clang)
	@tests/fuzz/run.sh $$(( $(or $(MINUTES),10) * 60 ))

install: build         ## library, headers and binary, to PREFIX (default /usr/local)
	@cmake --install $(BUILD) --prefix $(or $(PREFIX),/usr/local)

clean:
	@rm -rf build
