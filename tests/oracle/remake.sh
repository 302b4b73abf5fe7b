#!/bin/sh
# Makes data/ (models, expected logits, checksums) and docs/oracle.md from nothing.
set -eu
cd "$(dirname "$0")/../.."
python=$(tests/oracle/venv.sh)
rm -rf tests/oracle/data
"$python" tests/oracle/make_models.py
"$python" tests/oracle/expect.py
cmake --preset release >/dev/null
cmake --build --preset release --target oracle_report
build/release/tests/oracle_report tests/oracle/data > docs/oracle.md
