// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// How a warpgroup's registers hold a 64-row accumulator of wgmma.
#pragma once

#include <cstdint>

#include "sm90/pipeline/storage.h"

namespace ffpa::sm90 {

// A thread's part: rows `row` and `row + 8`, and of each 8 columns the columns `column` and
// `column + 1`. Register 4 j + 2 r + i holds column 8 j + column + i of row `row + 8 r`.
struct Lane {
  uint32_t row, column;

  FFPA_HD static constexpr Lane of(uint32_t thread) {
    return {thread % 128 / 32 * 16 + thread % 32 / 4, thread % 4 * 2};
  }
};

// The row of a value's register.
FFPA_HD constexpr int row_of_register(int i) { return i / 2 % 2; }

#ifdef __CUDACC__
// Over the four threads that share a row.
FFPA_ROLE float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
FFPA_ROLE float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}
// Among the four threads of a row: afterwards x[i] is what thread i had in x[thread].
FFPA_ROLE void quad_transpose(uint32_t (&x)[4], uint32_t thread) {
  FFPA_UNROLL
  for (int bit = 1; bit <= 2; bit *= 2) {
    FFPA_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (i & bit) continue;
      const bool upper = thread & bit;
      const uint32_t other = __shfl_xor_sync(~0u, upper ? x[i] : x[i | bit], bit);
      (upper ? x[i] : x[i | bit]) = other;
    }
  }
}
#endif

}  // namespace ffpa::sm90
