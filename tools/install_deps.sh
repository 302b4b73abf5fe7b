#!/bin/sh
# Installs the system packages winnow builds with, where they are missing. Debian and its relatives. --ci: also what CI's
# checks and tests use, and real clients of the server from PyPI (into build/).
set -eu

packages="cmake ninja-build g++ pkg-config ccache libhwy-dev libpcre2-dev libedit-dev libxxhash-dev nlohmann-json3-dev libboost-dev libssl-dev libgtest-dev python3"
if [ "${1:-}" = "--ci" ]; then
  packages="$packages clang clang-format clang-tidy libclang-rt-14-dev binutils curl haproxy openssl slowhttptest wrk python3-venv"
  # Without PyPI CI goes on: the tests of clients say why they are skipped.
  clients() { "$(dirname "$0")/../tests/server/venv.sh" || echo "install_deps: no clients from PyPI; their tests are skipped" >&2; }
else
  clients() { :; }
fi

if ! command -v dpkg-query >/dev/null 2>&1; then
  echo "install_deps: this system has no dpkg; install the equivalents of: $packages" >&2
  exit 0
fi

missing=""
for package in $packages; do
  status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
  case "$status" in
    "install ok installed"*) ;;  # said once for each architecture
    *) missing="$missing $package" ;;
  esac
done
if [ -z "$missing" ]; then
  clients
  exit 0
fi

run=""
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null 2>&1; then
    echo "install_deps: missing packages; install them as root:" >&2
    echo "  apt-get install$missing" >&2
    exit 1
  fi
  run="sudo"
fi
echo "Installing:$missing"
export DEBIAN_FRONTEND=noninteractive
$run apt-get update -qq
# shellcheck disable=SC2086
$run apt-get install -y -qq --no-install-recommends $missing >/dev/null
clients
