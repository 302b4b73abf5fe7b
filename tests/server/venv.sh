#!/bin/sh
# Makes build/clients-venv, which has requirements.txt, where it is not there yet. Clients, examples and the browser of tests use it.
set -eu
cd "$(dirname "$0")/../.."
venv=build/clients-venv
if ! cmp -s tests/server/requirements.txt $venv/complete; then
  rm -rf $venv
  python3 -m venv $venv
  $venv/bin/pip install -q --disable-pip-version-check --no-compile -r tests/server/requirements.txt
  cp tests/server/requirements.txt $venv/complete
fi
