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
cp "$source/examples/generate.cc" "$work/consumer"
cat >"$work/consumer/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
find_package(winnow REQUIRED)
add_executable(generate generate.cc)
target_link_libraries(generate PRIVATE winnow::winnow)
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

[ "$(pkg-config --modversion winnow)" = "$version" ]
grep -q "define WINNOW_VERSION \"$version\"" "$work/prefix/include/winnow/version.h"
"$work/prefix/bin/winnow" --version | grep -q "^winnow $version\$"
echo "install: example built with find_package and with pkg-config, and run"
