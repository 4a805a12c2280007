// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "cpu/amx.h"

#include "cpu/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ffpa::cpu {

bool amx_available() { return isa() == Isa::kAmx; }

#if defined(__x86_64__)
namespace {

#define FFPA_AMX __attribute__((target("amx-tile,amx-bf16")))

constexpr int kTile = 16;   // rows of a tile, and columns of a float32 one
constexpr int kDepth = 32;  // bfloat16 columns of an A tile

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes_per_row[16] = {};
  uint8_t rows[16] = {};
};

TileConfig all_tiles_full() {
  TileConfig config;
  for (int t = 0; t < 8; ++t) {
    config.bytes_per_row[t] = 64;
    config.rows[t] = kTile;
  }
  return config;
}

// Tiles: 0..3 C [2 rows][2 columns of tiles], 4..5 A, 6..7 B.
FFPA_AMX inline void load_c(bool accumulate, bool two_rows, bool two_columns, const float* c,
                            int64_t ldc) {
  if (!accumulate) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    return;
  }
  const int64_t stride = ldc * 4;
  _tile_loadd(0, c, stride);
  if (two_columns) _tile_loadd(1, c + kTile, stride);
  if (two_rows) _tile_loadd(2, c + kTile * ldc, stride);
  if (two_rows && two_columns) _tile_loadd(3, c + kTile * ldc + kTile, stride);
}

FFPA_AMX inline void store_c(bool two_rows, bool two_columns, float* c, int64_t ldc) {
  const int64_t stride = ldc * 4;
  _tile_stored(0, c, stride);
  if (two_columns) _tile_stored(1, c + kTile, stride);
  if (two_rows) _tile_stored(2, c + kTile * ldc, stride);
  if (two_rows && two_columns) _tile_stored(3, c + kTile * ldc + kTile, stride);
}

// C of one or two rows by one or two columns of tiles. A row of tiles of A is k * kTile elements.
template <bool kTwoRows, bool kTwoColumns>
FFPA_AMX void block(int k, const uint16_t* a, const uint16_t* b, float* c, int64_t ldc,
                    bool accumulate) {
  load_c(accumulate, kTwoRows, kTwoColumns, c, ldc);
  const uint16_t *a1 = a + int64_t{k} * kTile, *b1 = b + int64_t{k} * kTile;
  for (int kk = 0; kk < k; kk += kDepth) {
    const int64_t at = int64_t{kk} * kTile;
    _tile_loadd(4, a + at, 64);
    _tile_loadd(6, b + at, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kTwoColumns) {
      _tile_loadd(7, b1 + at, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kTwoRows) {
      _tile_loadd(5, a1 + at, 64);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kTwoColumns) _tile_dpbf16ps(3, 5, 7);
    }
  }
  store_c(kTwoRows, kTwoColumns, c, ldc);
}

template <bool kTwoColumns>
void columns(int m, int k, const uint16_t* a, const uint16_t* b, float* c, int64_t ldc,
             bool accumulate) {
  int r = 0;
  for (; r + 2 * kTile <= m; r += 2 * kTile) {
    block<true, kTwoColumns>(k, a + int64_t{r} * k, b, c + r * ldc, ldc, accumulate);
  }
  if (r < m) block<false, kTwoColumns>(k, a + int64_t{r} * k, b, c + r * ldc, ldc, accumulate);
}

thread_local bool configured = false;

FFPA_AMX void configure() {
  if (configured) return;
  static const TileConfig config = all_tiles_full();
  _tile_loadconfig(&config);
  configured = true;
}

}  // namespace

void matmul_bf16(int m, int groups, int k, const uint16_t* a, const uint16_t* b, float* c,
                 int64_t ldc, bool accumulate) {
  configure();
  const int64_t group = int64_t{k} * kTile;
  int g = 0;
  for (; g + 2 <= groups; g += 2) {
    columns<true>(m, k, a, b + g * group, c + g * kTile, ldc, accumulate);
  }
  if (g < groups) columns<false>(m, k, a, b + g * group, c + g * kTile, ldc, accumulate);
}

FFPA_AMX void amx_release() {
  if (configured) _tile_release();
  configured = false;
}

#else

void matmul_bf16(int, int, int, const uint16_t*, const uint16_t*, float*, int64_t, bool) {}
void amx_release() {}

#endif

}  // namespace ffpa::cpu
