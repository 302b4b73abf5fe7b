#!/bin/sh
# Prints the path of a Python that has requirements.txt, making build/oracle-venv if need be.
set -eu
cd "$(dirname "$0")/../.."
venv=build/oracle-venv
if [ ! -e $venv/complete ]; then
  python3 -m venv $venv >&2
  # llama.cpp for this very machine. The two flags: gcc 12 drops the stores that fill the AMX tile configuration (the
  # instruction's intrinsic names only 8 of its bytes), and llama.cpp then dies of SIGILL where there is AMX. No cache of pip's: a wheel
  # kept there may have been compiled without them.
  CMAKE_ARGS="-DGGML_NATIVE=ON -DCMAKE_CXX_FLAGS='-fno-tree-dse -fno-dse'" \
    $venv/bin/pip install --no-cache-dir --no-binary llama-cpp-python -r tests/oracle/requirements.txt >&2
  touch $venv/complete
fi
echo $venv/bin/python
