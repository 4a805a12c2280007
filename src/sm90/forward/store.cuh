// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The last step of a tile: O and LSE to global memory.
#pragma once

#include "sm90/forward/machine.cuh"

namespace ffpa::sm90 {

// The row's sum with the sink's share. A row without keys stays as it is: the sink has no value.
FFPA_ROLE void add_sink(float& max, float& sum, float& scale, float sink) {
  const float with_sink = fmaxf(max, sink);
  scale = ptx::exp2_approx(max - with_sink);
  sum = sum * scale + ptx::exp2_approx(sink - with_sink);
  max = with_sink;
}

// Only rows of the sequence are written. A row that is not in use, or sees no key: O = 0, lse =
// -inf.
template <class Config>
FFPA_ROLE void ForwardMachine<Config>::store(const Output& rO, const Rows& rows, Buffer tile,
                                             int w) {
  constexpr float kLn2 = 0.693147180559945f, kLog2e = 1.44269504088896f;
  const Lane lane = Lane::of(ptx::thread_index());
  const int head = field(tile, offsetof(WorkTile, head));
  FFPA_UNROLL
  for (int r = 0; r < 2; ++r) {
    const int row = field(tile, offsetof(WorkTile, q_row)) + lane.row + 8 * r;
    if (row >= field(tile, offsetof(WorkTile, rows_q))) continue;
    float max = rows.max[r], sum = rows.sum[r], scale = 1;
    const bool empty = row >= field(tile, offsetof(WorkTile, len_q)) || sum == 0;
    if (params.sink && !empty)
      add_sink(max, sum, scale, params.sink[head * params.sink_stride] * kLog2e);
    scale = scale / sum;
    auto* out = reinterpret_cast<uint16_t*>(params.out) +
                ptx::load_shared_int64(smem + tile.offset + offsetof(WorkTile, out_offset)) +
                row * params.out_row + w * Config::kHalf + lane.column;
    FFPA_UNROLL
    for (int j = 0; j < Config::kHalf / 8; ++j) {
      if (w * Config::kHalf + 8 * j >= params.head_dim_v) break;
      const float* x = &rO.x[4 * j + 2 * r];
      *reinterpret_cast<uint32_t*>(out + 8 * j) =
          empty ? 0 : ptx::pack<Config::kDType>(x[0] * scale, x[1] * scale);
    }
    if (params.lse && w == 0 && lane.column == 0) {
      float* lse =
          params.lse + ptx::load_shared_int64(smem + tile.offset + offsetof(WorkTile, lse_offset));
      lse[row * params.lse_row] = empty ? -INFINITY : (max + log2f(sum)) * kLn2;
    }
  }
}

}  // namespace ffpa::sm90
