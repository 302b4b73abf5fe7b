#!/bin/sh
# The main job on the model that is part of winnow: questions about a document, answered with the full cache and with
# compressed ones. Called by `make demo`.
set -eu
winnow=$1/winnow
document=examples/documents/harbour.txt
flags="--kv-method streaming,h2o,snapkv,hbw,keydiff --kv-ratio 0.25 -n 12"

say() { printf '\n$ %s\n' "$*"; }

ask() {
  say winnow compare -f $document -q "\"$1\"" $flags
  "$winnow" compare -f $document -q "$1" $flags --quiet
}

cat <<TEXT

$document is a story of some 1800 tokens in which facts are hidden. A small model that was trained here to
find them, and is part of winnow, is asked: with the full cache, and with a quarter of it under five methods.
TEXT
ask "What is the secret code of the red lantern?"
ask "What is the locker number of the silver compass?"
ask "What is the birthday of the old bridge?"
say winnow bench -p 2048 -n 64 -r 3
"$winnow" bench -p 2048 -n 64 -r 3
cat <<TEXT

The same on a model and a document of yours:
  $winnow compare -m model.gguf -f report.txt -q "Who signed?" --kv-method snapkv,hbw --kv-ratio 0.25
All methods: $winnow methods     all commands: $winnow --help
An HTTP server for OpenAI clients, with a page for the browser: make serve
TEXT
