#!/bin/sh
# The main job on the model at hand: load, read a prompt, write text, tell what it cost. Called by `make demo`.
set -eu
build=$1
winnow=$build/winnow
model=$build/tiny-random.gguf

"$build/tools/make_tiny_model" "$model" >/dev/null

say() { printf '\n$ %s\n' "$*"; }

cat <<'TEXT'

No trained model ships with winnow yet. This demo uses a tiny model with RANDOM weights, made just now: it runs every part of the
engine, but what it writes is word salad. With a real GGUF file:  build/release/winnow run -m model.gguf -p "..."
TEXT
say winnow inspect tiny-random.gguf
"$winnow" inspect "$model"
say winnow run -m tiny-random.gguf -p '"Once upon a time"' -n 64 --seed 1
"$winnow" run -m "$model" -p "Once upon a time" -n 64 --seed 1
say winnow bench -m tiny-random.gguf -p 256 -n 64 -r 3
"$winnow" bench -m "$model" -p 256 -n 64 -r 3
cat <<TEXT

Done. Next:  $winnow --help
TEXT
