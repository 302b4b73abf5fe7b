#!/bin/sh
# Fails and names the files that clang-format would change.
set -eu
cd "$(dirname "$0")/.."
if ! command -v clang-format >/dev/null 2>&1; then
  echo "format: skipped: clang-format is not installed"
  exit 0
fi
bad=0
for file in $(git ls-files '*.h' '*.cc'); do
  [ -f "$file" ] || continue
  clang-format "$file" | cmp -s - "$file" || { echo "format: clang-format -i $file"; bad=1; }
done
[ "$bad" -eq 0 ] && echo "format: ok"
exit "$bad"
