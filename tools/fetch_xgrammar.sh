#!/bin/sh
# fetch_xgrammar.sh [FOLDER]: the C++ sources of xgrammar (Apache-2.0) from its source package on PyPI, for builds with
# -DWINNOW_GRAMMAR=ON. FOLDER is build/xgrammar unless given.
set -eu
version=0.2.8
root=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-$root/build/xgrammar}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=python3  # a Python without pip: that of the clients' tests has one
python3 -m pip --version >/dev/null 2>&1 || python=$root/build/clients-venv/bin/python
"$python" -m pip download --quiet --no-deps --no-binary xgrammar --dest "$work" "xgrammar==$version"
mkdir -p "$folder"
tar xzf "$work/xgrammar-$version.tar.gz" -C "$folder" --strip-components=1
echo "xgrammar $version is in $folder; now: cmake --preset release -DWINNOW_GRAMMAR=ON -DWINNOW_XGRAMMAR_DIR=$folder"
