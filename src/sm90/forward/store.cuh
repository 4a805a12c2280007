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

// Rows of out need no more than the alignment of an element.
FFPA_ROLE void store_half_pair(uint16_t* to, uint32_t x) {
  to[0] = uint16_t(x);
  to[1] = uint16_t(x >> 16);
}

// Only rows of the sequence are written. A row that is not in use, or sees no key: O = 0, lse =
// -inf.
template <class Config>
template <int kColumns>
FFPA_ROLE void ForwardMachine<Config>::store(const Output<kColumns>& rO, const Rows& rows,
                                             Buffer tile, int w) {
  constexpr float kLn2 = 0.693147180559945f, kLog2e = 1.44269504088896f;
  const Lane lane = Lane::of(ptx::thread_index());
  const int head = field(tile, offsetof(WorkTile, head));
  FFPA_UNROLL
  for (int r = 0; r < 2; ++r) {
    const int row =
        field(tile, offsetof(WorkTile, q_row)) + Config::first_row(w) + lane.row + 8 * r;
    const bool mine = row < field(tile, offsetof(WorkTile, rows_q));
    float max = rows.max[r], sum = rows.sum[r], scale = 1;
    const bool empty = row >= field(tile, offsetof(WorkTile, len_q)) || sum == 0;
    if (params.sink && !empty)
      add_sink(max, sum, scale, params.sink[head * params.sink_stride] * kLog2e);
    scale = scale / sum;
    const int first = Config::first_column(w) + int(lane.column) * 4;
    auto* out = reinterpret_cast<uint16_t*>(params.out) +
                ptx::load_shared_int64(smem + tile.offset + offsetof(WorkTile, out_offset)) +
                row * params.out_row + first;
    FFPA_UNROLL
    for (int j = 0; j < kColumns / 8; j += 4) {  // 32 columns of the row, 8 of them this thread's
      uint32_t x[4];
      FFPA_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float* o = &rO.x[4 * (j + i) + 2 * r];
        x[i] = empty ? 0 : ptx::pack<Config::kDType>(o[0] * scale, o[1] * scale);
      }
      quad_transpose(x, lane.column / 2);
      const int column = first + 8 * j;  // those below first_stored are the other's to store
      if (!mine || column < Config::first_stored(w) || column >= params.head_dim_v) continue;
      if (params.out_aligned) {
        *reinterpret_cast<uint4*>(out + 8 * j) = make_uint4(x[0], x[1], x[2], x[3]);
      } else {
        FFPA_UNROLL
        for (int i = 0; i < 4; ++i) store_half_pair(out + 8 * j + 2 * i, x[i]);
      }
    }
    if (mine && params.lse && Config::first_stored(w) == 0 && lane.column == 0) {
      float* lse =
          params.lse + ptx::load_shared_int64(smem + tile.offset + offsetof(WorkTile, lse_offset));
      lse[row * params.lse_row] = empty ? -INFINITY : (max + log2f(sum)) * kLn2;
    }
  }
}

}  // namespace ffpa::sm90
