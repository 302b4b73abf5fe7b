#!/bin/sh
# Makes build/ik-llama if need be: the sources of PyPI's ik-llama-cpp-python, and its library compiled for this very machine (some minutes). Not
# by pip: the archive lacks a file that its other targets need. Needs: what `make test` installs.
set -eu
cd "$(dirname "$0")/../.."
folder=build/ik-llama
[ -e $folder/complete ] && exit
mkdir -p $folder
python3 -m pip download -q --no-deps --no-binary :all: -d $folder ik-llama-cpp-python==0.1.5 >&2
tar xzf $folder/ik_llama_cpp_python-0.1.5.tar.gz -C $folder --strip-components 1
cmake -G Ninja -S $folder/vendor/ik_llama.cpp -B $folder/build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON > $folder/log 2>&1 &&
  cmake --build $folder/build --target llama >> $folder/log 2>&1 || { tail -40 $folder/log >&2; exit 1; }
touch $folder/complete
