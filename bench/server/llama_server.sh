#!/bin/sh
# Prints the path of a llama-server for this machine, building it if need be from the sources in PyPI's llama-cpp-python,
# the version that tests/oracle/requirements.txt names: its best build, as bench/llama_cpp measures it.
set -eu
cd "$(dirname "$0")/../.."
place=$PWD/build/llama-server
if [ ! -e "$place/complete" ]; then
  mkdir -p "$place"
  version=$(sed -n 's/^llama-cpp-python==//p' tests/oracle/requirements.txt)
  python3 -m venv "$place/venv" >&2
  # --no-build-isolation: the metadata alone would build it all.
  "$place/venv/bin/pip" install -q scikit-build-core setuptools >&2
  "$place/venv/bin/pip" download -q --no-deps --no-build-isolation --no-binary :all: -d "$place" "llama-cpp-python==$version" >&2
  tar -xzf "$place"/llama_cpp_python-*.tar.gz -C "$place"
  sources=$(echo "$place"/llama_cpp_python-*/vendor/llama.cpp)
  # The two flags: see tests/oracle/venv.sh.
  cmake -S "$sources" -B "$place/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF \
    -DLLAMA_BUILD_APP=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=ON -DLLAMA_BUILD_SERVER=ON \
    -DBUILD_SHARED_LIBS=OFF -DCMAKE_CXX_FLAGS='-fno-tree-dse -fno-dse' >&2
  cmake --build "$place/build" --target llama-server -j 2 >&2
  touch "$place/complete"
fi
echo "$place/build/bin/llama-server"
