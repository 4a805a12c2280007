// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Sums of a warpgroup to global memory.
#pragma once

#include "sm90/backward/params.h"
#include "sm90/ptx/math.cuh"
#include "sm90/ptx/thread.cuh"
#include "sm90/tile/fragment.cuh"

namespace ffpa::sm90 {

// 64 rows from `first_row` of a sequence whose first row lies at `offset`, rows before `rows` only;
// columns of half `half`. Both halves compute the columns in which they overlap; the first stores.
template <class Config>
FFPA_ROLE void store_gradient(const float (&sums)[Config::kColumns / 2], const GradientRows& to,
                              int64_t offset, int first_row, int rows, int half, float scale) {
  if (!to.data) return;
  const Lane lane = Lane::of(ptx::thread_index());
  const int first = Config::first_column(half) + int(lane.column) * 4;
  FFPA_UNROLL
  for (int r = 0; r < 2; ++r) {
    const int row = first_row + int(lane.row) + 8 * r;
    auto* out = static_cast<uint16_t*>(to.data) + offset + row * to.row + first;
    FFPA_UNROLL
    for (int j = 0; j < Config::kColumns / 8; j += 4) {  // 32 columns of the row, 8 this thread's
      uint32_t x[4];
      FFPA_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float* s = &sums[4 * (j + i) + 2 * r];
        x[i] = ptx::pack<Config::kDType>(s[0] * scale, s[1] * scale);
      }
      quad_transpose(x, lane.column / 2);
      if (row >= rows || first + 8 * j < half * Config::kColumns) continue;
      if (to.aligned) {
        *reinterpret_cast<uint4*>(out + 8 * j) = make_uint4(x[0], x[1], x[2], x[3]);
      } else {
        FFPA_UNROLL
        for (int i = 0; i < 4; ++i) {
          out[8 * j + 2 * i] = uint16_t(x[i]);
          out[8 * j + 2 * i + 1] = uint16_t(x[i] >> 16);
        }
      }
    }
  }
}

}  // namespace ffpa::sm90
