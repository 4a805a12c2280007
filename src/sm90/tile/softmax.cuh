// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Online softmax on accumulators. Units of log2 throughout.
#pragma once

#include <cfloat>

#include "plan/visibility.h"
#include "sm90/ptx/math.cuh"
#include "sm90/tile/fragment.cuh"

namespace ffpa::sm90 {

// Running maximum and sum of a thread's two rows; the sum is at the scale of max, and until
// quad_sum it is that of the thread's own columns.
struct RowState {
  float max[2], sum[2];
};

// The least finite maximum: rescaling needs no special case for a row that has seen no key yet.
FFPA_ROLE RowState empty_rows() { return {{-FLT_MAX, -FLT_MAX}, {0, 0}}; }

// tanh(scale x), to 2e-7: tanh.approx would be 2^-11.
template <int kCount>
FFPA_ROLE void cap_scores(float (&s)[kCount], float scale) {
  const float twice = scale * 2.885390081777927f;  // 2 log2(e)
  FFPA_UNROLL
  for (int i = 0; i < kCount; ++i) {
    s[i] = 1 - 2 * ptx::reciprocal_approx(1 + ptx::exp2_approx(s[i] * twice));
  }
}

// Column 0 of the accumulator is key `first_key`, row 0 query `first_row`.
template <int kCount>
FFPA_ROLE void mask_scores(float (&s)[kCount], const Visibility& v, int first_row, int first_key,
                           Lane lane) {
  FFPA_UNROLL
  for (int r = 0; r < 2; ++r) {
    const Range keys = visible_keys(v, first_row + lane.row + 8 * r);
    const int begin = keys.begin - first_key - lane.column;
    const int end = keys.end - first_key - lane.column;
    FFPA_UNROLL
    for (int j = 0; j < kCount / 4; ++j) {
      FFPA_UNROLL
      for (int i = 0; i < 2; ++i) {
        float& x = s[4 * j + 2 * r + i];
        x = begin <= 8 * j + i && 8 * j + i < end ? x : -INFINITY;
      }
    }
  }
}

// The new max of the rows with a block of scores.
template <int kCount>
FFPA_ROLE void block_max(const float (&s)[kCount], RowState& block, const RowState& rows,
                         float scale) {
  FFPA_UNROLL
  for (int r = 0; r < 2; ++r) {
    float most = s[2 * r];
    FFPA_UNROLL
    for (int j = 0; j < kCount / 4; ++j) {
      most = fmaxf(most, fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
    }
    block.max[r] = fmaxf(rows.max[r], quad_max(most) * scale);
    block.sum[r] = 0;
  }
}

// S becomes exp2(scale S - max); the new max and the block's sum.
template <int kCount>
FFPA_ROLE void exponentiate_block(float (&s)[kCount], RowState& block, const RowState& rows,
                                  float scale) {
  block_max(s, block, rows, scale);
  FFPA_UNROLL
  for (int i = 0; i < kCount; ++i) {
    const int r = row_of_register(i);
    s[i] = ptx::exp2_approx(fmaf(s[i], scale, -block.max[r]));
    block.sum[r] += s[i];
  }
}

// Rounds to halves; the volatile statements keep the conversions before what comes next. ptxas
// serializes wgmma where it finds them inside a group.
template <DType kDType, int kCount>
FFPA_ROLE void pack_block(const float (&s)[kCount], uint32_t (&p)[kCount / 2]) {
  FFPA_UNROLL
  for (int i = 0; i < kCount / 2; ++i) {
    p[i] = ptx::pack<kDType>(s[2 * i], s[2 * i + 1]);
    asm volatile("" : "+r"(p[i])::"memory");
  }
}

// P = exp2(scale S - max), the new max and the block's sum. `half_way` runs half-way through.
template <DType kDType, int kCount, class HalfWay>
FFPA_ROLE void softmax_block(const float (&s)[kCount], uint32_t (&p)[kCount / 2], RowState& block,
                             const RowState& rows, float scale, HalfWay half_way) {
  block_max(s, block, rows, scale);
  FFPA_UNROLL
  for (int i = 0; i < kCount; i += 2) {
    if (i == kCount / 2) half_way();
    const int r = row_of_register(i);
    const float lo = ptx::exp2_approx(fmaf(s[i], scale, -block.max[r]));
    const float hi = ptx::exp2_approx(fmaf(s[i + 1], scale, -block.max[r]));
    block.sum[r] += lo + hi;
    p[i / 2] = ptx::pack<kDType>(lo, hi);
  }
}

// Brings O and the sums to the scale of next.max, adds next.sum. Skipped when no row moved.
template <int kCount>
FFPA_ROLE void rescale_output(float (&o)[kCount], RowState& rows, const RowState& next) {
  float f[2];
  FFPA_UNROLL
  for (int r = 0; r < 2; ++r) {
    f[r] = ptx::exp2_approx(rows.max[r] - next.max[r]);
    rows.sum[r] = rows.sum[r] * f[r] + next.sum[r];
    rows.max[r] = next.max[r];
  }
  if (__any_sync(~0u, f[0] != 1.f || f[1] != 1.f)) {
    FFPA_UNROLL
    for (int i = 0; i < kCount; ++i) o[i] *= f[row_of_register(i)];
  }
}

}  // namespace ffpa::sm90
