#!/bin/sh
# soak.sh BUILD REQUESTS SECONDS SEED KILLS MUTATIONS: the long forms of the server's survival tests, of a
# build folder. SECONDS 0: as long as REQUESTS take.
set -eu
build=$(cd "$1" && pwd)
cd "$(dirname "$0")"
# Sanitizers keep what was freed: memory says nothing there.
WINNOW_SANITIZE=$(sed -n 's/^WINNOW_SANITIZE:[^=]*=//p' "$build/CMakeCache.txt")
export WINNOW_SANITIZE
export WINNOW="$build/winnow" MAKE_TINY_MODEL="$build/tools/make_tiny_model" PYTHONDONTWRITEBYTECODE=1
model=$(mktemp --suffix=.gguf)
trap 'rm -f "$model"' EXIT
"$MAKE_TINY_MODEL" "$model" >/dev/null
python3 soak.py "$WINNOW" "$model" --requests "$2" --seconds "$3" --seed "$4"
WINNOW_SOAK_CONNECTIONS=10000 python3 -m unittest test_hostile
WINNOW_SOAK_KILLS="$5" python3 -m unittest test_survival
"$build/tests/winnow_session_mutations" --seed "$4" --count "$6"
