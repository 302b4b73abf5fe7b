#!/bin/sh
# run.sh SECONDS [BUILD_FOLDER [TARGET...]]: builds the fuzz targets and runs each for SECONDS, two at a time, starting
# from tests/fuzz/corpus and keeping what they learn in BUILD_FOLDER/corpus. Exits non-zero on a crash, leak, hang (10 s)
# or more than 512 MB of memory; the input that did it is then in BUILD_FOLDER/findings, the output in BUILD_FOLDER/logs.
set -eu
[ $# -ge 1 ] || { echo "usage: $0 SECONDS [BUILD_FOLDER [TARGET...]]" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
seconds=$1
build=${2:-$root/build/fuzz}
shift; [ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- gguf split tokenizer merges chat jinja answer spec parts recording results log_probs data session request http
targets=make_seeds
for name in "$@"; do targets="$targets ${name}_fuzz"; done
# shellcheck disable=SC2086 # a list of words
(cd "$root" && cmake --preset fuzz -B "$build" >/dev/null && cmake --build "$build" --target $targets)

for name in "$@"; do mkdir -p "$build/corpus/$name" "$build/seeds/$name"; done
mkdir -p "$build/findings" "$build/logs" "$build/tmp" "$build/seeds/gguf" "$build/seeds/log_probs"
"$build/make_seeds" "$build/seeds"

# Runs one target; prints a line.
cat >"$build/run_one.sh" <<'EOF'
set -u
name=$1 seconds=$2 here=$3 build=$4
seeds="$build/seeds/$name"
[ ! -d "$here/corpus/$name" ] || seeds="$seeds $here/corpus/$name"
[ ! -f "$here/$name.dict" ] || seeds="-dict=$here/$name.dict $seeds"
# shellcheck disable=SC2086 # a list of words
TMPDIR="$build/tmp" "$build/${name}_fuzz" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=512 \
  -malloc_limit_mb=64 -max_len=8192 -print_final_stats=1 -artifact_prefix="$build/findings/$name-" \
  "$build/corpus/$name" $seeds >"$build/logs/$name" 2>&1
status=$?
runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/logs/$name")
echo "$name: ${runs:-0} inputs, exit status $status"
if [ $status -ne 0 ]; then
  tail -40 "$build/logs/$name"
  # The input, in case only this output is available; `base64 -d | gunzip` restores it.
  for input in "$build/findings/$name-"*; do
    [ ! -f "$input" ] || { echo "$input:"; gzip -9 <"$input" | base64; }
  done
fi
exit $status
EOF
printf '%s\n' "$@" | xargs -P 2 -I NAME sh "$build/run_one.sh" NAME "$seconds" "$here" "$build"
