#!/bin/sh
# The main job on the model that is part of winnow: a document is compressed, and then questions about it are answered
# that nobody had asked yet. Called by `make demo`.
set -eu
winnow=$1/winnow
document=examples/documents/harbour.txt

say() { printf '\n$ %s\n' "$*"; }

cat <<TEXT

$document is a story of some 1800 tokens in which facts are hidden. A small model that was trained here to
find them, and is part of winnow, reads it. Then its cache is compressed to a sixteenth of the bytes of a full one in
f16, under five methods, and only then three questions are asked.
TEXT
lantern="What is the secret code of the red lantern?"
compass="What is the locker number of the silver compass?"
bridge="What is the birthday of the old bridge?"
flags="--kv-method winnow,kvzip,snapkv,h2o,streaming --equal-bytes 0.0625 -ctk q8_0 -ctv q4_0 -n 12"
say winnow compare -f $document --hide-question -q "\"$lantern\"" -q "\"$compass\"" -q "\"$bridge\"" $flags
"$winnow" compare -f $document --hide-question -q "$lantern" -q "$compass" -q "$bridge" $flags --quiet
say winnow bench -p 2048 -n 64 -r 3
"$winnow" bench -p 2048 -n 64 -r 3
cat <<TEXT

The same on a model and a document of yours:
  $winnow compare -m model.gguf -f report.txt --hide-question -q "Who signed?" --kv-method winnow,snapkv \\
    --equal-bytes 0.0625 -ctk q8_0 -ctv q4_0
All methods: $winnow methods     all commands: $winnow --help
An HTTP server for OpenAI clients, with a page for the browser: make serve
TEXT
