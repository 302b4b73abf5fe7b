#!/bin/sh
# Installs the system packages winnow builds with, where they are missing. Debian and its relatives. --ci: also what CI's
# checks and tests use, among it a browser, and clients of the server from PyPI (into build/).
set -eu

packages="cmake ninja-build g++ pkg-config ccache libhwy-dev libpcre2-dev libedit-dev libxxhash-dev nlohmann-json3-dev libboost-dev libssl-dev libgtest-dev python3"
wanted=""  # without one of these the tests that look for its program are skipped, and say so
if [ "${1:-}" = "--ci" ]; then
  packages="$packages clang clang-format clang-tidy libclang-rt-14-dev binutils curl openssl python3-venv"
  wanted="chromium chromium-driver haproxy prometheus slowhttptest systemd wrk"
  # Without PyPI CI goes on as well.
  clients() { "$(dirname "$0")/../tests/server/venv.sh" || echo "install_deps: no clients and no selenium from PyPI; their tests are skipped" >&2; }
else
  clients() { :; }
fi

if ! command -v dpkg-query >/dev/null 2>&1; then
  echo "install_deps: this system has no dpkg; install the equivalents of: $packages" >&2
  exit 0
fi

not_installed() {
  for package in "$@"; do
    status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
    case "$status" in
      "install ok installed"*) ;;  # said once for each architecture
      *) printf ' %s' "$package" ;;
    esac
  done
}
# shellcheck disable=SC2086
missing=$(not_installed $packages)
# shellcheck disable=SC2086
missing_wanted=$(not_installed $wanted)
if [ -z "$missing$missing_wanted" ]; then
  clients
  exit 0
fi

run=""
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null 2>&1; then
    echo "install_deps: missing packages; install them as root:" >&2
    echo "  apt-get install$missing$missing_wanted" >&2
    [ -z "$missing" ] || exit 1
    clients
    exit 0
  fi
  run="sudo"
fi
echo "Installing:$missing$missing_wanted"
export DEBIAN_FRONTEND=noninteractive
install() { $run apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }
$run apt-get update -qq
# shellcheck disable=SC2086
[ -z "$missing" ] || install $missing
# shellcheck disable=SC2086
if [ -n "$missing_wanted" ] && ! install $missing_wanted; then
  for package in $missing_wanted; do
    install "$package" || echo "install_deps: there is no $package; the tests that need it are skipped" >&2
  done
fi
clients
