#!/bin/sh
# check_prefetch.sh BINARY: whether the kernels that ask for memory ahead still do so in what the compiler made of
# them. GCC has dropped every such call once, because a function that only prefetches looks as if it did nothing.
# x86-64 only; needs objdump.
set -eu
binary=$1
found=$(mktemp)
trap 'rm -f "$found"' EXIT
objdump --disassemble --no-show-raw-insn --demangle "$binary" |
  awk '/^[0-9a-f]+ </ { name = $0 } /\tprefetch/ { print name }' | sort -u > "$found"
missing=0
grep -q 'N_AVX[23].*::' "$found" || { echo "prefetch: no kernels in $binary" >&2; exit 1; }
# find_in TARGET NAME...
find_in() {
  target=$1
  shift
  grep -q "$target::" "$found" || return 0  # not compiled for it
  for name in "$@"; do
    if ! grep -q "$target::.*$name" "$found"; then
      echo "prefetch: none in $target::$name" >&2
      missing=$((missing + 1))
    fi
  done
}
for target in N_AVX2 N_AVX3_DL; do  # with 8-bit products
  find_in $target 'Dot<.*PolicyQ8_0' 'Dot<.*PolicyQ4_0' 'Dot<.*PolicyQ4_K' 'DotFloatRows<.*LoadF16'
done
for target in N_AVX2 N_AVX3; do  # src/kernels/cpu/simd/targets.h: WINNOW_FLOAT_KERNELS
  find_in $target 'ScoreChunk' 'AccumulateBlocks<.*Q8Block' 'Accumulate[A-Z][a-z]*<.*F16Elements'
done
[ $missing -eq 0 ] || exit 1
echo "prefetch: ok"
