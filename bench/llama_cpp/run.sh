#!/bin/sh
# run.sh WINNOW [compare.py's flags]: speed of that binary against llama.cpp, which the first run installs from PyPI
# into build/oracle-venv (compiled for this machine, so it takes some minutes).
set -eu
binary=$(realpath "$1")
shift
cd "$(dirname "$0")/../.."
python=$(tests/oracle/venv.sh)
exec "$python" bench/llama_cpp/compare.py --winnow "$binary" "$@"
