#!/bin/sh
# run.sh WINNOW -m MODEL [table.py's flags]: the table of servers under load, winnow beside llama-server, which the first
# run builds into build/llama-server (some minutes).
set -eu
binary=$(realpath "$1")
shift
cd "$(dirname "$0")/../.."
exec python3 bench/server/table.py --winnow "$binary" --load "$(dirname "$binary")/winnow_server_load" \
  --llama-server "$(bench/server/llama_server.sh)" "$@"
