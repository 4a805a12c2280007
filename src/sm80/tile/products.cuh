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

// Fragments of 16 columns of X and Y.
template <class C>
struct ScoreFragments {
  uint32_t x[C::kScoreM][4], y[C::kScoreN / 2][4];

  __device__ __forceinline__ void load(uint32_t from_x, uint32_t from_y) {
#pragma unroll
    for (int m = 0; m < C::kScoreM; ++m) ldmatrix_x4(x[m], from_x + m * 16 * kPanelRowBytes);
#pragma unroll
    for (int n = 0; n < C::kScoreN / 2; ++n) ldmatrix_x4(y[n], from_y + n * 16 * kPanelRowBytes);
  }

  template <class T>
  __device__ __forceinline__ void multiply(float (&s)[C::kScoreM][C::kScoreN][4]) const {
#pragma unroll
    for (int n = 0; n < C::kScoreN / 2; ++n) {
#pragma unroll
      for (int m = 0; m < C::kScoreM; ++m) {
        mma<T>(s[m][2 * n], x[m], y[n][0], y[n][1]);
        mma<T>(s[m][2 * n + 1], x[m], y[n][2], y[n][3]);
      }
    }
  }
};

// Where this lane's fragments of X and Y begin.
template <class C>
struct ScoreAddresses {
  uint32_t x, y;
  int x_unit, y_unit, turn;

  __device__ __forceinline__ ScoreAddresses(uint32_t x_panel, uint32_t y_panel) {
    const int lane = lane_id();
    const int m0 = warp_id() / C::kScoreWarpsN * (16 * C::kScoreM) + lane % 16;
    const int n0 = warp_id() % C::kScoreWarpsN * (8 * C::kScoreN) + lane % 8 + lane / 16 * 8;
    // Rows of one lane differ by multiples of 8: one permutation.
    x = x_panel + m0 * kPanelRowBytes;
    y = y_panel + n0 * kPanelRowBytes;
    x_unit = lane / 16;
    y_unit = lane / 8 % 2;
    turn = lane % 8;
  }

  __device__ __forceinline__ void load(ScoreFragments<C>& f, int step) const {
    const int panel = step / 4, unit = step % 4 * 2;
    f.load(x + panel * (C::kRows * kPanelRowBytes) + (((unit + x_unit) ^ turn) << 4),
           y + panel * (C::kBlock * kPanelRowBytes) + (((unit + y_unit) ^ turn) << 4));
  }
};

// kSteps in straight-line code: at every branch the compiler waits for all loads. kAhead: fragments
// are loaded one step ahead, where registers allow it.
template <class T, class C, bool kAhead, int kSteps>
__device__ __forceinline__ void add_score_steps(float (&s)[C::kScoreM][C::kScoreN][4],
                                                const ScoreAddresses<C>& from) {
  ScoreFragments<C> f[2];
  if (kAhead) from.load(f[0], 0);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if (!kAhead) from.load(f[step % 2], step);
    if (kAhead && step + 1 < kSteps) from.load(f[(step + 1) % 2], step + 1);
    f[step % 2].template multiply<T>(s);
  }
}

// s [16 kScoreM rows][8 kScoreN columns] += X Y^T over `steps` x 16 columns of panels of X
// [rows][64] and Y [block][64].
template <class T, class C, bool kAhead>
__device__ __forceinline__ void add_score_product(float (&s)[C::kScoreM][C::kScoreN][4], uint32_t x,
                                                  uint32_t y, int steps) {
  const ScoreAddresses<C> from(x, y);
  if (steps == 8) return add_score_steps<T, C, kAhead, 8>(s, from);
  if (steps == 4) return add_score_steps<T, C, kAhead, 4>(s, from);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    ScoreFragments<C> f;
    from.load(f, step);
    f.template multiply<T>(s);
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

// Where this lane's fragments of W and Z begin.
template <class C>
struct SumAddresses {
  uint32_t w, z;
  int w_unit, z_unit, turn;

  __device__ __forceinline__ SumAddresses(uint32_t w_panels, uint32_t z_rows, int z_row_bytes,
                                          int first_tile) {
    const int lane = lane_id();
    w = w_panels + (warp_id() / C::kSumWarpsN * (16 * C::kSumM) + lane % 16) * kPanelRowBytes;
    z = z_rows + lane % 16 * z_row_bytes;
    w_unit = lane / 16;
    z_unit = first_tile + lane / 16;
    turn = lane % 8;
  }

  // 16 columns of W from `column`.
  __device__ __forceinline__ void load_w(uint32_t (&a)[C::kSumM][4], int column) const {
    const uint32_t from = w + column / kPanel * (C::kRows * kPanelRowBytes) +
                          ((column % kPanel / 8 + w_unit) ^ turn) * 16;
#pragma unroll
    for (int m = 0; m < C::kSumM; ++m) ldmatrix_x4(a[m], from + m * 16 * kPanelRowBytes);
  }
  // Column tiles n and n + 1 of 16 rows of Z that begin at byte `row`.
  __device__ __forceinline__ void load_z(uint32_t (&b)[4], int row, int n) const {
    ldmatrix_x4_trans(b, z + row + (((z_unit + n) ^ turn) << 4));
  }
};

// sums += W Z over kSteps x 16 rows of Z, in straight-line code; the warp holds all kSumN tiles.
template <class T, class C, int kSteps>
__device__ __forceinline__ void add_sum_steps(float (&sums)[C::kSumM][C::kSumN][4],
                                              const SumAddresses<C>& from, int w_column, int z_row,
                                              int z_row_bytes) {
  uint32_t b[2][4];
  from.load_z(b[0], z_row, 0);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    uint32_t a[C::kSumM][4];
    from.load_w(a, w_column + 16 * step);
#pragma unroll
    for (int n = 0; n < C::kSumN; n += 2) {
      const int item = step * (C::kSumN / 2) + n / 2;
      if (n + 2 < C::kSumN) {
        from.load_z(b[(item + 1) % 2], z_row + 16 * step * z_row_bytes, n + 2);
      } else if (step + 1 < kSteps) {
        from.load_z(b[(item + 1) % 2], z_row + 16 * (step + 1) * z_row_bytes, 0);
      }
      const uint32_t (&now)[4] = b[item % 2];
#pragma unroll
      for (int m = 0; m < C::kSumM; ++m) {
        mma<T>(sums[m][n], a[m], now[0], now[1]);
        mma<T>(sums[m][n + 1], a[m], now[2], now[3]);
      }
    }
  }
}

// The same over 16 rows where the warp holds `count` < kSumN tiles.
template <class T, class C>
__device__ __forceinline__ void add_some_sums(float (&sums)[C::kSumM][C::kSumN][4],
                                              const SumAddresses<C>& from, int w_column, int z_row,
                                              int count) {
  uint32_t a[C::kSumM][4];
  from.load_w(a, w_column);
#pragma unroll
  for (int n = 0; n < C::kSumN; n += 2) {
    if (n >= count) break;
    uint32_t b[4];
    from.load_z(b, z_row, n);
#pragma unroll
    for (int m = 0; m < C::kSumM; ++m) mma<T>(sums[m][n], a[m], b[0], b[1]);
    if (n + 1 < count) {
#pragma unroll
      for (int m = 0; m < C::kSumM; ++m) mma<T>(sums[m][n + 1], a[m], b[2], b[3]);
    }
  }
}

// sums [16 kSumM][8 kSumN] += W Z over `steps` x 16 rows of Z, from column `w_column` of W.
template <class T, class C>
__device__ __forceinline__ void add_sum_product(float (&sums)[C::kSumM][C::kSumN][4],
                                                const SumColumns& columns, uint32_t w, int w_column,
                                                uint32_t z, int z_row_bytes, int steps) {
  const SumAddresses<C> from(w, z, z_row_bytes, columns.first);
  int step = 0;
  if (columns.count == C::kSumN) {
#pragma unroll 1
    for (; step + 2 <= steps; step += 2) {
      add_sum_steps<T, C, 2>(sums, from, w_column + 16 * step, 16 * step * z_row_bytes,
                             z_row_bytes);
    }
    if (step < steps) {
      add_sum_steps<T, C, 1>(sums, from, w_column + 16 * step, 16 * step * z_row_bytes,
                             z_row_bytes);
    }
    return;
  }
#pragma unroll 1
  for (; step < steps; ++step) {
    add_some_sums<T, C>(sums, from, w_column + 16 * step, 16 * step * z_row_bytes, columns.count);
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
