#!/bin/sh
# run.sh SECONDS [BUILD_FOLDER]: builds the fuzz targets and runs each for SECONDS, keeping what they learn in
# BUILD_FOLDER/corpus. Exits non-zero on a crash, leak, hang (5 s) or more than 512 MB of memory; the input that did
# it is then in BUILD_FOLDER/findings.
set -eu
[ $# -ge 1 ] || { echo "usage: $0 SECONDS [BUILD_FOLDER]" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${2:-$root/build/fuzz}
(cd "$root" && cmake --preset fuzz -B "$build" >/dev/null && cmake --build "$build" --target gguf_fuzz tokenizer_fuzz)
mkdir -p "$build/corpus/gguf" "$build/corpus/tokenizer" "$build/seeds/gguf" "$build/findings"
"$build/make_seeds" "$build/seeds/gguf"
"$build/gguf_fuzz" -max_total_time="$1" -timeout=5 -rss_limit_mb=512 -malloc_limit_mb=64 -max_len=8192 \
  -print_final_stats=1 -dict="$here/gguf.dict" -artifact_prefix="$build/findings/gguf-" \
  "$build/corpus/gguf" "$build/seeds/gguf"
"$build/tokenizer_fuzz" -max_total_time="$1" -timeout=5 -rss_limit_mb=512 -malloc_limit_mb=64 -max_len=4096 \
  -print_final_stats=1 -dict="$here/tokenizer.dict" -artifact_prefix="$build/findings/tokenizer-" \
  "$build/corpus/tokenizer"
