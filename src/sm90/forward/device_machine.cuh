// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The machine of roles.h on the GPU: every named step is a few instructions.
#pragma once

#include <cfloat>

#include "sm90/forward/params.h"
#include "sm90/forward/shared_memory.h"
#include "sm90/forward/work.h"
#include "sm90/ptx/mbarrier.cuh"
#include "sm90/ptx/registers.cuh"
#include "sm90/ptx/tma.cuh"
#include "sm90/ptx/wgmma.cuh"

namespace ffpa::sm90 {

// This thread's part of a 64-row accumulator: rows `row` and `row + 8`, and of each 8 columns the
// columns `column` and `column + 1`. Register 4 j + 2 r + i holds column 8 j + column + i of row r.
struct Lane {
  uint32_t row, column;
  FFPA_ROLE static Lane of(uint32_t t) { return {t % 128 / 32 * 16 + t % 32 / 4, t % 4 * 2}; }
};

// T: __nv_bfloat16 or __half.
template <class T>
struct DeviceMachine {
  using Config = Forward512;
  using SharedMemory = sm90::SharedMemory<Config>;
  using S = SharedMemory;
  struct Output {
    float x[128];
  };
  struct Scores {
    float x[64];
  };
  struct Probs {
    uint32_t x[32];
  };
  struct Rows {
    float max[2], sum[2];  // max in units of log2, sum at the scale of max
  };

  const ForwardParams& params;
  const uint32_t smem;  // shared memory starts here
  const int role;       // consumer 0, 1, producer 0, 1

  FFPA_ROLE DeviceMachine(const ForwardParams& p, uint32_t shared, int r)
      : params(p), smem(shared), role(r) {}

  // --- work tiles: the n-th of this CTA
  FFPA_ROLE uint32_t index(int n) const { return blockIdx.x + n * gridDim.x; }
  FFPA_ROLE bool has_tile(int n) const {
    return index(n) < uint32_t(*params.list.count) * params.heads;
  }
  FFPA_ROLE int32_t window_left() const { return params.window_left; }
  FFPA_ROLE int32_t window_right() const { return params.window_right; }
  FFPA_ROLE WorkTile enter(int n) {
    const uint32_t per_section = uint32_t(*params.list.count) * params.heads_at_once;
    const uint32_t section = index(n) / per_section, i = index(n) % per_section;
    const uint32_t first_head = section * params.heads_at_once;
    const uint32_t heads = min(params.heads_at_once, params.heads - first_head);
    const uint32_t tile = i / heads, head = first_head + i % heads;
    // Kept for the steps that need it again, and for a WaitReport.
    ptx::store_shared(smem + S::kTiles + 8 * role, int(tile));
    ptx::store_shared(smem + S::kTiles + 8 * role + 4, int(head));
    const QueryTile t = params.list.tiles[tile];
    return {t.batch, t.q_begin, t.k_begin,  t.len_q,
            t.len_k, t.q_row,   int(head), int(head / params.group)};
  }
  // This role's tile again: no register holds it through the main loop.
  FFPA_ROLE QueryTile tile() const {
    return params.list.tiles[ptx::load_shared_int(smem + S::kTiles + 8 * role)];
  }
  FFPA_ROLE int head() const { return ptx::load_shared_int(smem + S::kTiles + 8 * role + 4); }
  // The same in the whole warp, and said so: what depends on it can stay in uniform registers.
  FFPA_ROLE static int uniform(int x) { return __shfl_sync(~0u, x, 0); }

  // --- barriers
  FFPA_ROLE void wait(Barrier b, uint32_t parity) { ptx::mbarrier_wait(smem + b.offset, parity); }
  FFPA_ROLE void arrive_one(Barrier b) {
    if (threadIdx.x % 128 == 0) ptx::mbarrier_arrive(smem + b.offset);
  }
  FFPA_ROLE void arrive_warps(Barrier b) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(smem + b.offset);
  }
  FFPA_ROLE void arrive_all(Barrier b) { ptx::mbarrier_arrive(smem + b.offset); }
  FFPA_ROLE void fence_async_proxy() { ptx::fence_proxy_async(); }

  // --- copies, by one lane of the producer's warp. The whole warp runs the role, so that ptxas
  // keeps addresses in uniform registers; in a one-lane branch each TMA instruction becomes a loop.
  FFPA_ROLE void expect(Barrier b, uint32_t bytes) {
    if (ptx::elect_one()) ptx::mbarrier_arrive_expect(smem + b.offset, bytes);
  }
  FFPA_ROLE void load_q(Buffer to, Barrier ready, const WorkTile& t) {
    load(params.q, to, ready, t.q_row, 0, t.head, t.len_q, t.q_begin, t.batch);
  }
  FFPA_ROLE void load_k(Buffer to, Barrier ready, const WorkTile& t, int block, int c) {
    load(params.k, to, ready, block * 128, c, t.kv_head, t.len_k, t.k_begin, t.batch);
  }
  FFPA_ROLE void load_v(Buffer to, Barrier ready, const WorkTile& t, int block, int c, int w) {
    // Not past the last row: a box that lies outside a ragged map as a whole faults.
    const int row = min(block * 128 + c * 32, t.len_k - 1);
    load(params.v, to, ready, row, 4 * w, t.kv_head, t.len_k, t.k_begin, t.batch);
  }
  // Coordinates: column in a group of 64, row, group, head, and the sequence (see kRaggedRows).
  FFPA_ROLE void load(const CUtensorMap& map, Buffer to, Barrier ready, int row, int group,
                      int head, int length, int begin, int batch) {
    if (ptx::elect_one()) {
      const bool packed = params.packed;
      ptx::tma_load_5d(smem + to.offset, map, smem + ready.offset, 0,
                       packed ? kRaggedRows - length + row : row, group, head,
                       packed ? begin + length : batch);
    }
  }

  // --- tensor cores. Each of these is one wgmma group.
  template <int kLeft>
  FFPA_ROLE void wait_groups() {
    ptx::wgmma_wait_group<kLeft>();
  }
  // S += Q[64 x 64c..64c+63] K[128 x the same]^T
  FFPA_ROLE void qk(Scores& rS, Buffer q, Buffer k, int /*block*/, int c) {
    ptx::wgmma_fence();
    const uint64_t a = k_major(q.offset + c * 8192), b = k_major(k.offset);
    FFPA_UNROLL
    for (int i = 0; i < 4; ++i) ptx::wgmma_m64n128_ss<T>(rS.x, a + 2 * i, b + 2 * i, c + i != 0);
    ptx::wgmma_commit_group();
  }
  // O += P[64 x 32c..32c+31] V[32 x 256]; P in shared memory, two tiles of 64 keys
  FFPA_ROLE void pv(Output& rO, Buffer p, Buffer v, int /*block*/, int c) {
    ptx::wgmma_fence();
    const uint64_t a = k_major(p.offset + c / 2 * 8192 + c % 2 * 64), b = mn_major(v.offset);
    FFPA_UNROLL
    for (int i = 0; i < 2; ++i) ptx::wgmma_m64n256_ss_bt<T>(rO.x, a + 2 * i, b + 128 * i, true);
    ptx::wgmma_commit_group();
  }
  // the same with P in registers
  FFPA_ROLE void pv(Output& rO, const Probs& rP, Buffer v, int /*block*/, int c) {
    ptx::wgmma_fence();
    const uint64_t b = mn_major(v.offset);
    FFPA_UNROLL
    for (int i = 0; i < 2; ++i) {
      ptx::wgmma_m64n256_rs_bt<T>(rO.x, &rP.x[4 * (2 * c + i)], b + 128 * i, true);
    }
    ptx::wgmma_commit_group();
  }
  // Descriptors, 128-byte swizzle. K-major: rows of 128 B, 8-row groups 1024 B apart.
  FFPA_ROLE uint64_t k_major(uint32_t offset) const { return descriptor(offset, 1); }
  // MN-major: boxes of [32 keys][64 columns], the next 64 columns 4096 B on.
  FFPA_ROLE uint64_t mn_major(uint32_t offset) const { return descriptor(offset, 4096 >> 4); }
  FFPA_ROLE uint64_t descriptor(uint32_t offset, uint64_t leading) const {
    return ((smem + offset) >> 4) | leading << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
  }

  // --- softmax
  FFPA_ROLE void clear(Output& rO, Rows& rows) {
    FFPA_UNROLL
    for (int i = 0; i < 128; ++i) rO.x[i] = 0;
    // The least finite max: rescaling needs no special case for a row that has seen no key yet.
    rows = {{-FLT_MAX, -FLT_MAX}, {0, 0}};
  }
  FFPA_ROLE void mask(Scores& rS, int /*n*/, int block) {
    const QueryTile t = tile();
    const Visibility v{t.len_q, t.len_k, params.window_left, params.window_right};
    const Lane lane = Lane::of(ptx::thread_index());
    FFPA_UNROLL
    for (int r = 0; r < 2; ++r) {
      const Range keys = visible_keys(v, t.q_row + lane.row + 8 * r);
      const int origin = block * Config::kBlockN + lane.column;
      const int begin = keys.begin - origin, end = keys.end - origin;
      FFPA_UNROLL
      for (int j = 0; j < 16; ++j) {
        FFPA_UNROLL
        for (int i = 0; i < 2; ++i) {
          float& s = rS.x[4 * j + 2 * r + i];
          s = begin <= 8 * j + i && 8 * j + i < end ? s : -INFINITY;
        }
      }
    }
  }
  // P = exp2(scale S - max), and the new max and the block's sum. `half_way` runs half-way through.
  template <class HalfWay>
  FFPA_ROLE void softmax(const Scores& rS, Probs& rP, Rows& mine, const Rows& rows,
                         HalfWay half_way) {
    const float scale = params.scale_log2;
    FFPA_UNROLL
    for (int r = 0; r < 2; ++r) {
      float most = rS.x[2 * r];
      FFPA_UNROLL
      for (int j = 0; j < 16; ++j) {
        most = fmaxf(most, fmaxf(rS.x[4 * j + 2 * r], rS.x[4 * j + 2 * r + 1]));
      }
      mine.max[r] = fmaxf(rows.max[r], quad_max(most) * scale);
      mine.sum[r] = 0;
    }
    FFPA_UNROLL
    for (int i = 0; i < 64; i += 2) {
      if (i == 32) half_way();
      const int r = i / 2 % 2;
      const float lo = ptx::exp2_approx(fmaf(rS.x[i], scale, -mine.max[r]));
      const float hi = ptx::exp2_approx(fmaf(rS.x[i + 1], scale, -mine.max[r]));
      mine.sum[r] += lo + hi;
      rP.x[i / 2] = ptx::pack<T>(lo, hi);
    }
  }
  // Brings O and the sums to the scale of next.max, adds next.sum. No wgmma may be in flight on rO.
  FFPA_ROLE void rescale(Output& rO, Rows& rows, const Rows& next) {
    float f[2];
    FFPA_UNROLL
    for (int r = 0; r < 2; ++r) {
      f[r] = ptx::exp2_approx(rows.max[r] - next.max[r]);
      rows.sum[r] = rows.sum[r] * f[r] + next.sum[r];
      rows.max[r] = next.max[r];
    }
    if (__any_sync(~0u, f[0] != 1.f || f[1] != 1.f)) {
      FFPA_UNROLL
      for (int i = 0; i < 128; ++i) rO.x[i] *= f[i / 2 % 2];
    }
  }
  FFPA_ROLE static float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
  }
  FFPA_ROLE static float quad_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
  }

  // --- shared memory between the warpgroups
  // K-major tiles of 64 keys, 128-byte swizzle.
  FFPA_ROLE void write_p(Buffer p, const Probs& rP, int /*block*/) {
    const uint32_t t = ptx::thread_index() % 128, lane = t % 32, row = t / 32 * 16 + lane % 16;
    FFPA_UNROLL
    for (int j = 0; j < 16; j += 2) {  // 16 rows x 16 keys at a time
      const uint32_t chunk = (j % 8 + lane / 16) ^ (row % 8);
      ptx::stmatrix_x4(smem + p.offset + j / 8 * 8192 + row * 128 + chunk * 16, &rP.x[2 * j]);
    }
  }
  FFPA_ROLE void write_row_max(Buffer b, const Rows& mine, int /*block*/) { write(b, mine.max); }
  FFPA_ROLE Rows read_row_max(Buffer b, int /*block*/) {
    const uint32_t from = smem + b.offset + 4 * Lane::of(threadIdx.x).row;
    return {{ptx::load_shared(from), ptx::load_shared(from + 32)}, {0, 0}};
  }
  FFPA_ROLE void write_row_sum(Buffer b, Rows& rows) {
    rows.sum[0] = quad_sum(rows.sum[0]);
    rows.sum[1] = quad_sum(rows.sum[1]);
    write(b, rows.sum);
  }
  FFPA_ROLE void read_row_sums(Rows& rows, Buffer b0, Buffer b1) {
    FFPA_UNROLL
    for (int r = 0; r < 2; ++r) {
      const uint32_t from = smem + 4 * (Lane::of(threadIdx.x).row + 8 * r);
      rows.sum[r] = ptx::load_shared(from + b0.offset) + ptx::load_shared(from + b1.offset);
    }
  }
  FFPA_ROLE void write(Buffer b, const float (&x)[2]) {
    const Lane lane = Lane::of(ptx::thread_index());
    const uint32_t to = smem + b.offset + 4 * lane.row;
    if (lane.column == 0) {
      ptx::store_shared(to, x[0]);
      ptx::store_shared(to + 32, x[1]);
    }
  }

  // --- results. Only rows of the sequence are written. A row without keys: O = 0, lse = -inf.
  FFPA_ROLE void store(const Output& rO, const Rows& rows, int /*n*/, int w) {
    const QueryTile t = tile();
    const int h = head();
    const Lane lane = Lane::of(ptx::thread_index());
    FFPA_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int row = t.q_row + lane.row + 8 * r;
      if (row >= t.len_q) continue;
      const int64_t token = t.q_begin + row;
      float max = rows.max[r], sum = rows.sum[r], weight = 1;
      if (params.sink && sum != 0) add_sink(h, max, sum, weight);
      const float factor = sum == 0 ? 0.f : weight / sum;
      T* out = static_cast<T*>(params.out) + t.batch * params.out_batch_stride +
               token * params.out_row_stride + h * params.out_head_stride + w * 256 + lane.column;
      FFPA_UNROLL
      for (int j = 0; j < 32; ++j) {
        const float* x = &rO.x[4 * j + 2 * r];
        *reinterpret_cast<uint32_t*>(out + 8 * j) = ptx::pack<T>(x[0] * factor, x[1] * factor);
      }
      if (params.lse && w == 0 && lane.column == 0) {
        constexpr float kLn2 = 0.693147180559945f;
        params.lse[t.batch * params.lse_batch_stride + h * params.lse_head_stride +
                   token * params.lse_row_stride] =
            sum == 0 ? -INFINITY : (max + log2f(sum)) * kLn2;
      }
    }
  }
  // One more key of this logit, without a value.
  FFPA_ROLE void add_sink(int h, float& max, float& sum, float& weight) const {
    constexpr float kLog2E = 1.44269504088896f;
    const float sink = params.sink[h * params.sink_stride] * kLog2E, most = fmaxf(max, sink);
    weight = exp2f(max - most);
    sum = sum * weight + exp2f(sink - most);
    max = most;
  }
};

}  // namespace ffpa::sm90
