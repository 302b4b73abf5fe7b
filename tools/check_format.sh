#!/bin/sh
# Fails and names the files that clang-format would change, and those of more than 400 lines.
set -eu
cd "$(dirname "$0")/.."
bad=0
for file in $(git ls-files --cached --others --exclude-standard '*.h' '*.cc' '*.py' '*.js'); do
  [ -f "$file" ] || continue
  lines=$(wc -l <"$file")
  [ "$lines" -le 400 ] || { echo "length: $file: $lines lines, at most 400"; bad=1; }
done
if ! command -v clang-format >/dev/null 2>&1; then
  echo "format: skipped: clang-format is not installed"
  exit "$bad"
fi
for file in $(git ls-files '*.h' '*.cc'); do
  [ -f "$file" ] || continue
  clang-format "$file" | cmp -s - "$file" || { echo "format: clang-format -i $file"; bad=1; }
done
[ "$bad" -eq 0 ] && echo "format: ok"
exit "$bad"
