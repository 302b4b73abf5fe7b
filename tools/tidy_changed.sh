#!/usr/bin/env bash
# tidy_changed.sh [BASE]: clang-tidy on the sources that differ from BASE, working tree included; fails on a finding.
# Without BASE: where HEAD left origin/main, or HEAD~1 where it is on it. A changed header is seen through the source of
# its name, or the first that includes it. Findings in files that did not change do not count, and files that differ in comments only
# are left out. Starts no file after MINUTES (4) and lists what it did not check.
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=${MINUTES:-4}
say() { echo "tidy: $*"; }

command -v clang-tidy >/dev/null || { say "clang-tidy is missing; install it (tools/install_deps.sh --ci)" >&2; exit 2; }
if [ $# -gt 0 ]; then
  base=$(git rev-parse --quiet --verify "$1^{commit}") ||
    { say "'$1' is no commit of this clone; expected one, as HEAD~10 or origin/main" >&2; exit 2; }
else
  base=$(git merge-base HEAD origin/main 2>/dev/null || true)
  if [ -z "$base" ] || [ "$base" = "$(git rev-parse HEAD)" ]; then
    base=$(git rev-parse --quiet --verify HEAD~1) ||
      { say "nothing checked: this clone has no commit before HEAD (git fetch --deepen=1 brings it)"; exit 0; }
  fi
fi

grammar=OFF
[ ! -e build/xgrammar/include ] || grammar=ON  # tools/fetch_xgrammar.sh
cmake --preset tidy -DWINNOW_GRAMMAR=$grammar >/dev/null  # for its compile commands; nothing is built
commands=build/tidy/compile_commands.json
is_built() { grep -qF "\"file\": \"$PWD/$1\"" "$commands"; }

# What clang-tidy reads for a changed file: the source itself, or one that includes the header.
source_for() {
  case $1 in
    *.cc) is_built "$1" && echo "$1"; return ;;
  esac
  is_built "${1%.h}.cc" && { echo "${1%.h}.cc"; return; }
  local name=${1#src/} user
  name=${name#include/} name=${name#apps/}
  for user in $(git grep -lE "#include [<\"]${name}[>\"]" -- '*.cc'); do
    is_built "$user" && { echo "$user"; return; }
  done
  return 1
}

# The comments that clang-tidy obeys stay.
without_comments() {
  local text
  text=$(cat)
  c++ -fpreprocessed -dD -E -P -w -x c++ - <<<"$text" 2>/dev/null && { grep NOLINT <<<"$text" || true; }
}
differs_in_code() {
  local before now
  before=$(git show "$base:$1" 2>/dev/null) || return 0
  # What the compiler cannot read counts as different.
  before=$(without_comments <<<"$before") && now=$(without_comments <"$1") || return 0
  [ "$before" != "$now" ]
}

sources=()
filter=""
while read -r file; do
  differs_in_code "$file" || continue
  filter="$filter${filter:+,}{\"name\":\"/$file\"}"
  if found=$(source_for "$file"); then
    sources+=("$found")
  else
    say "$file is not checked: the preset tidy does not build it"
  fi
done < <({ git diff --name-only --diff-filter=d "$base" -- '*.cc' '*.h'; git ls-files -o --exclude-standard -- '*.cc' '*.h'; } | sort -u)
[ ${#sources[@]} -gt 0 ] || { say "ok: no source differs in code from $(git rev-parse --short "$base")"; exit 0; }

end=$(($(date +%s) + minutes * 60))
left_out=$(mktemp)
trap 'rm -f "$left_out"' EXIT
filter="[$filter]"
export end left_out filter
check() {
  if [ "$(date +%s)" -ge "$end" ]; then
    echo "$1" >>"$left_out"
  else
    clang-tidy --quiet -p build/tidy --line-filter="$filter" "$1" 2>/dev/null || { echo "tidy: findings in $1"; return 1; }
  fi
}
export -f check
# shellcheck disable=SC2016 # expanded by the shell that xargs starts
printf '%s\n' "${sources[@]}" | sort -u | xargs -P "$(nproc)" -I FILE bash -c 'check "$1"' _ FILE || exit 1
n_left=$(wc -l <"$left_out")
[ "$n_left" -eq 0 ] || say "not checked after $minutes minutes (MINUTES=60 takes longer): $(tr '\n' ' ' <"$left_out")"
n=$(printf '%s\n' "${sources[@]}" | sort -u | wc -l)
say "ok: $((n - n_left)) of $n sources that differ from $(git rev-parse --short "$base")"
