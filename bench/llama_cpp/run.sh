#!/bin/sh
# run.sh WINNOW [table.py's flags]: the speed table of that binary against llama.cpp, which the first run installs from
# PyPI into build/oracle-venv (compiled for this machine, so it takes some minutes).
set -eu
binary=$(realpath "$1")
shift
cd "$(dirname "$0")/../.."
python=$(tests/oracle/venv.sh)
exec "$python" bench/llama_cpp/table.py --winnow "$binary" "$@"
