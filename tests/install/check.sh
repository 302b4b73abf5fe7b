#!/bin/sh
# check.sh BUILD SOURCE VERSION: installs the built tree into a temporary prefix and builds the example against it, with
# find_package(winnow) and with pkg-config; both must run and print the same.
set -eu
build=$1
source=$2
version=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
"$build/tools/make_tiny_model" "$work/tiny.gguf" 2>/dev/null

# Under its own name the project must not be found by accident, so nothing but the prefix is given.
mkdir "$work/consumer"
cp "$source"/examples/*.cc "$work/consumer"
cat >"$work/consumer/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
find_package(winnow REQUIRED)
foreach(example generate ask_often chat perplexity)
  add_executable(${example} ${example}.cc)
  target_link_libraries(${example} PRIVATE winnow::winnow)
endforeach()
END
cmake -S "$work/consumer" -B "$work/consumer/build" -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/cmake.log"
cmake --build "$work/consumer/build" >"$work/build.log"

PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name winnow.pc)")
export PKG_CONFIG_PATH
# shellcheck disable=SC2046
c++ -std=c++20 "$work/consumer/generate.cc" $(pkg-config --cflags --libs winnow) -o "$work/generate"

"$work/consumer/build/generate" "$work/tiny.gguf" "Once upon a time" >"$work/with_cmake"
"$work/generate" "$work/tiny.gguf" "Once upon a time" >"$work/with_pkg_config"
cmp "$work/with_cmake" "$work/with_pkg_config"
grep -q "tokens]" "$work/with_cmake"

# Read, and then gone on from what was saved: the same.
yes "the old man saw a house" | head -30 >"$work/document.txt"
for run in first again; do
  "$work/consumer/build/ask_often" "$work/tiny.gguf" "$work/document.txt" "Who?" "What?" >"$work/$run"
done
[ -s "$work/document.txt.session" ]
cmp "$work/first" "$work/again"

# A conversation whose cache stays small.
echo "Who are you?" | "$work/consumer/build/chat" "$work/tiny.gguf" h2o 64 >"$work/said"
grep -q ', 64 kept, ' "$work/said"

# A text is scored, with its progress; what is no text is refused.
head -c 200 "$work/document.txt" >"$work/text.txt"
"$work/consumer/build/perplexity" "$work/tiny.gguf" "$work/text.txt" 2>"$work/progress" >"$work/scored"
grep -q "^perplexity [0-9.]* over [0-9]* tokens$" "$work/scored"
grep -q "100 %" "$work/progress"
for wrong in "$work/nothing.txt" /dev/null; do
  ! "$work/consumer/build/perplexity" "$work/tiny.gguf" "$wrong" 2>"$work/refused" || exit 1
  grep -q "nothing to predict" "$work/refused"
done

[ "$(pkg-config --modversion winnow)" = "$version" ]
grep -q "define WINNOW_VERSION \"$version\"" "$work/prefix/include/winnow/version.h"
"$work/prefix/bin/winnow" --version | grep -q "^winnow $version\$"
echo "install: example built with find_package and with pkg-config, and run"
