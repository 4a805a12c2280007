// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The two products of a warp, from shared memory into registers.
//
// Fragments of a 16 x 8 tile: lane l holds columns 2 (l % 4) and + 1 of row l / 4 in [0] and [1],
// of row l / 4 + 8 in [2] and [3].
#pragma once

#include "sm80/tile/panel.cuh"

namespace ffpa::sm80 {

__device__ __forceinline__ int lane_id() { return static_cast<int>(threadIdx.x) % 32; }
__device__ __forceinline__ int warp_id() { return static_cast<int>(threadIdx.x) / 32; }

// s [16 kScoreM rows][8 kScoreN columns] += X Y^T over `steps` x 16 columns of panels of X
// [rows][64] and Y [block][64].
template <class T, class C>
__device__ __forceinline__ void add_score_product(float (&s)[C::kScoreM][C::kScoreN][4], uint32_t x,
                                                  uint32_t y, int steps) {
  const int lane = lane_id();
  const int m0 = warp_id() / C::kScoreWarpsN * (16 * C::kScoreM) + lane % 16;
  const int n0 =
      warp_id() % C::kScoreWarpsN * (8 * C::kScoreN) + lane % 8 + lane / 16 * 8;
  // Rows of one lane differ by multiples of 8: one permutation.
  x += m0 * kPanelRowBytes;
  y += n0 * kPanelRowBytes;
  const int x_unit = lane / 16, y_unit = lane / 8 % 2, turn = lane % 8;
#pragma unroll 2
  for (int step = 0; step < steps; ++step) {
    uint32_t a[C::kScoreM][4], b[C::kScoreN / 2][4];
    const uint32_t xs = x + (((2 * (step % 4) + x_unit) ^ turn) << 4);
    const uint32_t ys = y + (((2 * (step % 4) + y_unit) ^ turn) << 4);
#pragma unroll
    for (int m = 0; m < C::kScoreM; ++m) ldmatrix_x4(a[m], xs + m * 16 * kPanelRowBytes);
#pragma unroll
    for (int n = 0; n < C::kScoreN / 2; ++n) ldmatrix_x4(b[n], ys + n * 16 * kPanelRowBytes);
#pragma unroll
    for (int n = 0; n < C::kScoreN / 2; ++n) {
#pragma unroll
      for (int m = 0; m < C::kScoreM; ++m) {
        mma<T>(s[m][2 * n], a[m], b[n][0], b[n][1]);
        mma<T>(s[m][2 * n + 1], a[m], b[n][2], b[n][3]);
      }
    }
    if (step % 4 == 3) {
      x += C::kRows * kPanelRowBytes;
      y += C::kBlock * kPanelRowBytes;
    }
  }
}

// The column tiles of the sums that this warp holds.
struct SumColumns {
  int first, count;  // tiles of 8 columns
};

template <class C>
__device__ __forceinline__ SumColumns sum_columns(int width) {
  const int tiles = width / 8, each = (tiles + C::kSumWarpsN - 1) / C::kSumWarpsN;
  const int first = warp_id() % C::kSumWarpsN * each;
  return {first, max_of(0, min_of(each, tiles - first))};
}

// sums [16 kSumM][8 kSumN] += W Z over `steps` x 16 rows of Z, from column `w_column` of W.
// kFull: the warp holds kSumN column tiles.
template <class T, class C, bool kFull>
__device__ __forceinline__ void add_sum_product_of(float (&sums)[C::kSumM][C::kSumN][4],
                                                   const SumColumns& columns, uint32_t w,
                                                   int w_column, uint32_t z, int z_row_bytes,
                                                   int steps) {
  const int lane = lane_id(), turn = lane % 8;
  const int m0 = warp_id() / C::kSumWarpsN * (16 * C::kSumM) + lane % 16;
  w += m0 * kPanelRowBytes;
  z += lane % 16 * z_row_bytes;
  const int unit0 = columns.first + lane / 16;
#pragma unroll 2
  for (int step = 0; step < steps; ++step) {
    const int column = w_column + 16 * step;
    const uint32_t ws = w + column / kPanel * (C::kRows * kPanelRowBytes) +
                        ((column % kPanel / 8 + lane / 16) ^ turn) * 16;
    uint32_t a[C::kSumM][4];
#pragma unroll
    for (int m = 0; m < C::kSumM; ++m) ldmatrix_x4(a[m], ws + m * 16 * kPanelRowBytes);
#pragma unroll
    for (int n = 0; n < C::kSumN; n += 2) {
      if (kFull || n < columns.count) {
        uint32_t b[4];
        ldmatrix_x4_trans(b, z + (((unit0 + n) ^ turn) << 4));
#pragma unroll
        for (int m = 0; m < C::kSumM; ++m) {
          mma<T>(sums[m][n], a[m], b[0], b[1]);
          if (kFull || n + 1 < columns.count) mma<T>(sums[m][n + 1], a[m], b[2], b[3]);
        }
      }
    }
    z += 16 * z_row_bytes;
  }
}

template <class T, class C>
__device__ __forceinline__ void add_sum_product(float (&sums)[C::kSumM][C::kSumN][4],
                                                const SumColumns& columns, uint32_t w, int w_column,
                                                uint32_t z, int z_row_bytes, int steps) {
  if (columns.count == C::kSumN) {
    add_sum_product_of<T, C, true>(sums, columns, w, w_column, z, z_row_bytes, steps);
  } else {
    add_sum_product_of<T, C, false>(sums, columns, w, w_column, z, z_row_bytes, steps);
  }
}

// W's tile of this warp, rounded to T, as [block / 64] panels of [rows][64].
template <class T, class C>
__device__ __forceinline__ void store_w(const float (&s)[C::kScoreM][C::kScoreN][4], uint32_t w) {
  const int lane = lane_id();
  const int m0 = warp_id() / C::kScoreWarpsN * (16 * C::kScoreM) + lane / 4;
  const int n0 = warp_id() % C::kScoreWarpsN * (8 * C::kScoreN);
#pragma unroll
  for (int m = 0; m < C::kScoreM; ++m) {
#pragma unroll
    for (int n = 0; n < C::kScoreN; ++n) {
      const int column = n0 + 8 * n;
      const uint32_t to = w + column / kPanel * (C::kRows * kPanelRowBytes) +
                          panel_offset(m0 + 16 * m, column % kPanel / 8) + lane % 4 * 4;
      store_shared_4(to, pack<T>(s[m][n][0], s[m][n][1]));
      store_shared_4(to + 8 * kPanelRowBytes, pack<T>(s[m][n][2], s[m][n][3]));
    }
  }
}

}  // namespace ffpa::sm80
