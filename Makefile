# What a newcomer types. Needs git, make and a compiler toolchain; the rest is installed where it is missing.
.PHONY: demo build test check bench install clean deps

BUILD := build/release

demo: build            ## install what is missing, build, generate text on the bundled model
	@tools/demo.sh $(BUILD)

test: build            ## the same up to the build, then all tests
	@ctest --preset release

build: deps            ## leaves the binary at build/release/winnow
	@cmake --preset release $(CMAKE_FLAGS) >/dev/null
	@cmake --build --preset release

deps:
	@tools/install_deps.sh

check: deps            ## rules that need no build: which room includes what, formatting
	@python3 tools/check_layers.py
	@tools/check_format.sh

bench: build           ## speed against llama.cpp (installs llama-cpp-python from PyPI into build/); BENCH=quick: under 8 minutes
	@bench/llama_cpp/run.sh $(BUILD)/winnow --out build/bench $(if $(filter quick,$(BENCH)),--quick)

install: build         ## library, headers and binary, to PREFIX (default /usr/local)
	@cmake --install $(BUILD) --prefix $(or $(PREFIX),/usr/local)

clean:
	@rm -rf build
