// Products of packed bfloat16 blocks on AMX tiles. Included by kernels_bf16.h only.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

namespace {

// Requests permission for the tile registers, once per process.
int InitProducts() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 ? 1 : -1;
}

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Configures the tiles for a thread and releases them, so that context switches outside the scope
// save no tile state.
struct TileScope {
  TileScope() {
    static const TileConfig config;  // static: otherwise the compiler keeps only the first word
    _tile_loadconfig(&config);
  }
  ~TileScope() { _tile_release(); }
};

// c [32, 32] = (or +=) the product of k_blocks packed tile pairs. left: [k_block][2 tiles], right:
// [k_block][2 tiles].
inline void Block32(const Bf16* left, const Bf16* right, int k_blocks, float* c, int64_t ldc,
                    bool accumulate) {
  const int64_t stride = ldc * 4;
  if (accumulate) {
    _tile_loadd(0, c, stride);
    _tile_loadd(1, c + 16, stride);
    _tile_loadd(2, c + 16 * ldc, stride);
    _tile_loadd(3, c + 16 * ldc + 16, stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int k = 0; k < k_blocks; ++k, left += 2 * kTile, right += 2 * kTile) {
    _tile_loadd(4, left, 64);
    _tile_loadd(6, right, 64);
    _tile_loadd(7, right + kTile, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, left + kTile, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, stride);
  _tile_stored(1, c + 16, stride);
  _tile_stored(2, c + 16 * ldc, stride);
  _tile_stored(3, c + 16 * ldc + 16, stride);
}

}  // namespace
