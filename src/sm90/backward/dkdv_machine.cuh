// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The machine of dkdv_roles.h on the GPU: every named step is a few instructions.
#pragma once

#include <cstddef>

#include "sm90/backward/dkdv_roles.h"
#include "sm90/backward/gradient_store.cuh"
#include "sm90/backward/params.h"
#include "sm90/ptx/barrier.cuh"
#include "sm90/ptx/cluster.cuh"
#include "sm90/ptx/copy.cuh"
#include "sm90/ptx/math.cuh"
#include "sm90/ptx/memory.cuh"
#include "sm90/ptx/thread.cuh"
#include "sm90/ptx/wait.cuh"
#include "sm90/ptx/wgmma.cuh"
#include "sm90/tile/softmax.cuh"
#include "sm90/tile/swizzle.h"

namespace ffpa::sm90 {

template <class Config_, int kCta>
struct DkdvMachine {
  using Config = Config_;
  using S = typename Config::SharedMemory;
  static constexpr float kMessageScale = 32768;
  struct Scores {
    float x[32];
  };
  struct Weights {
    uint32_t x[16];
  };
  struct Sums {
    float x[Config::kColumns / 2];
  };

  const DkdvParams& params;
  const uint32_t smem;
  // Of the block at hand: its statistics (lse2 or delta), first query, and dS tile.
  float2 statistics[8];
  int q_row, ds_tile;
  bool full;

  FFPA_ROLE DkdvMachine(const DkdvParams& p, uint32_t shared) : params(p), smem(shared) {}

  FFPA_ROLE int field(uint32_t at) const { return ptx::load_shared_int(smem + S::kTile + at); }
  FFPA_ROLE int uniform_field(uint32_t at) const { return __shfl_sync(~0u, field(at), 0); }
  FFPA_ROLE int block_count() const {
    return uniform_field(offsetof(DkdvTile, blocks)) * params.group;
  }

  // --- barriers
  FFPA_ROLE void wait(Barrier b, uint32_t parity) { ptx::mbarrier_wait(smem + b.offset, parity); }
  FFPA_ROLE void arrive_one(Barrier b) {
    if (threadIdx.x % 128 == 0) ptx::mbarrier_arrive(smem + b.offset);
  }
  FFPA_ROLE void arrive_warps(Barrier b) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(smem + b.offset);
  }
  FFPA_ROLE void arrive_warps_of_peer(Barrier b) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      ptx::mbarrier_arrive_remote(ptx::map_to_rank(smem + b.offset, 1 - kCta));
    }
  }
  FFPA_ROLE void arrive_all(Barrier b) { ptx::mbarrier_arrive(smem + b.offset); }
  FFPA_ROLE void fence_async_proxy() { ptx::fence_proxy_async(); }

  // --- copies, by one lane of the producer's warp
  FFPA_ROLE void expect(Barrier b, uint32_t bytes) {
    if (ptx::elect_one()) ptx::mbarrier_arrive_expect(smem + b.offset, bytes);
  }
  FFPA_ROLE void load(const CUtensorMap& map, uint32_t to, Barrier ready, int x, int group,
                      int origin) {
    if (ptx::elect_one()) {
      ptx::tma_load_4d(smem + to, map, smem + ready.offset, 0, x, group, origin);
    }
  }
  FFPA_ROLE void load_x(Buffer to, Barrier ready) {
    const int x = uniform_field(offsetof(DkdvTile, x_x));
    const int origin = uniform_field(offsetof(DkdvTile, x_origin));
    FFPA_NO_UNROLL
    for (int c = 0; c < Config::kKPass; ++c) {
      load(params.own[kCta], to.offset + c * Config::kScoreBytes, ready, x, 2 * c, origin);
    }
  }
  // Row of the block in the maps, and the head's distance from the first one.
  FFPA_ROLE int query_row(int block, int* head) const {
    const int blocks = uniform_field(offsetof(DkdvTile, blocks));
    *head = block / blocks;
    return uniform_field(offsetof(DkdvTile, q_x)) +
           64 * (uniform_field(offsetof(DkdvTile, first_block)) + block - *head * blocks);
  }
  FFPA_ROLE void load_scores(Buffer to, Barrier ready, int block, int c) {
    int head;
    const int x = query_row(block, &head);
    const int origin =
        uniform_field(offsetof(DkdvTile, score_origin)) + head * int(params.score_units[kCta].head);
    load(params.scores[kCta], to.offset, ready, x, 2 * c, origin);
  }
  FFPA_ROLE void load_values(Buffer to, Barrier ready, int block, int c, int w) {
    int head;
    const int row = query_row(block, &head) + c * Config::kValueRows;
    // Not past the last row: a box that lies outside the map as a whole faults.
    const int x = min(row, params.value_units[kCta].extent - 1);
    const int origin =
        uniform_field(offsetof(DkdvTile, value_origin)) + head * int(params.value_units[kCta].head);
    load(params.values[kCta], to.offset, ready, x, Config::first_column(w) / 64, origin);
  }

  // --- tensor cores. Each of these is one wgmma group.
  template <int kLeft>
  FFPA_ROLE void wait_groups() {
    ptx::wgmma_wait_group<kLeft>();
  }
  FFPA_ROLE static uint64_t descriptor(uint32_t address, uint32_t leading) {
    // In a cluster, addresses have the CTA's rank above the bits that a descriptor has room for.
    return wgmma_descriptor(address & 0x3ffff, leading);
  }
  // S += X[64 x 128c..] Y[64 x the same]^T
  FFPA_ROLE void scores(Scores& s, Buffer x, Buffer slot, int /*block*/, int c) {
    ptx::wgmma_fence();
    FFPA_UNROLL
    for (int panel = 0; panel < 2; ++panel) {
      if (2 * c + panel >= Config::kPanels) break;
      const uint64_t a = descriptor(smem + x.offset + (2 * c + panel) * 8192, 16);
      const uint64_t b = descriptor(smem + slot.offset + panel * 8192, 16);
      FFPA_UNROLL
      for (int i = 0; i < 4; ++i) {
        ptx::Wgmma<64, Config::kDType, false>::ss(s.x, a + kStepKMajor * i, b + kStepKMajor * i,
                                                  c + panel + i != 0);
      }
    }
    ptx::wgmma_commit_group();
  }
  // sums += W[64 x 32c..32c+31] Z[32 x kColumns]; W in shared memory
  FFPA_ROLE void add(Sums& sums, Buffer p, Buffer slot, int /*block*/, int c) {
    ptx::wgmma_fence();
    const uint64_t a = descriptor(smem + p.offset + 64 * c, 16);
    const uint64_t b = descriptor(smem + slot.offset, Config::kValueRows * 128);
    FFPA_UNROLL
    for (int i = 0; i < 2; ++i) {
      ptx::Wgmma<Config::kColumns, Config::kDType, true>::ss(sums.x, a + kStepKMajor * i,
                                                             b + kStepMnMajor * i, true);
    }
    ptx::wgmma_commit_group();
  }
  // the same with W in registers
  FFPA_ROLE void add(Sums& sums, const Weights& weights, Buffer slot, int /*block*/, int c) {
    ptx::wgmma_fence();
    const uint64_t b = descriptor(smem + slot.offset, Config::kValueRows * 128);
    FFPA_UNROLL
    for (int i = 0; i < 2; ++i) {
      ptx::Wgmma<Config::kColumns, Config::kDType, true>::rs(sums.x, &weights.x[4 * (2 * c + i)],
                                                             b + kStepMnMajor * i, true);
    }
    ptx::wgmma_commit_group();
  }

  // --- scores
  // Statistics come while the scores are computed.
  FFPA_ROLE void begin_block(int block) {
    const int blocks = field(offsetof(DkdvTile, blocks));
    const int head = block / blocks, at = block - head * blocks;
    full = field(offsetof(DkdvTile, full_begin)) <= at && at < field(offsetof(DkdvTile, full_end));
    q_row = 64 * (field(offsetof(DkdvTile, first_block)) + at);
    ds_tile = field(offsetof(DkdvTile, ds_tile)) + head * int(params.ds_tiles_per_head) + at;
    const float* from = kCta == 0 ? params.lse2 : params.delta;
    from += (field(offsetof(DkdvTile, first_head)) + head) * params.statistics_stride +
            field(offsetof(DkdvTile, statistics_row)) + q_row + ptx::thread_index() % 4 * 2;
    FFPA_UNROLL
    for (int j = 0; j < 8; ++j) {
      statistics[j] = __ldg(reinterpret_cast<const float2*>(from + 8 * j));
    }
  }
  FFPA_ROLE bool has_softcap() const { return params.cap_scale != 0; }
  // Queries that see the key of row r, counted from the block's first one.
  FFPA_ROLE Range seen(int r) const {
    const Visibility v{field(offsetof(DkdvTile, len_q)), field(offsetof(DkdvTile, len_k)),
                       params.window_left, params.window_right};
    const int key = field(offsetof(DkdvTile, key_row)) + Lane::of(ptx::thread_index()).row + 8 * r;
    const Range q = key < v.len_k ? visible_queries(v, key) : Range{0, 0};
    return {q.begin - q_row, q.end - q_row};
  }
  // W = P^T, and S becomes what dS needs: P^T, under a softcap times 1 - tanh^2.
  FFPA_ROLE void probabilities(Scores& s, Weights& weights, int /*block*/) {
    const float scale = params.scale_log2;
    const bool cap = has_softcap();
    if (cap) cap_scores(s.x, params.cap_scale);
    FFPA_UNROLL
    for (int i = 0; i < 32; i += 2) {
      const float2 lse = statistics[i / 4];
      float lo = ptx::exp2_approx(fmaf(s.x[i], scale, -lse.x));
      float hi = ptx::exp2_approx(fmaf(s.x[i + 1], scale, -lse.y));
      s.x[i] = lo > params.alone ? 0 : cap ? lo * (1 - s.x[i] * s.x[i]) : lo;
      s.x[i + 1] = hi > params.alone ? 0 : cap ? hi * (1 - s.x[i + 1] * s.x[i + 1]) : hi;
      weights.x[i / 2] = ptx::pack<Config::kDType>(lo, hi);
    }
    if (!full) mask(s, weights);
  }
  FFPA_ROLE void mask(Scores& s, Weights& weights) {
    const int column = Lane::of(ptx::thread_index()).column;
    FFPA_UNROLL
    for (int r = 0; r < 2; ++r) {
      const Range q = seen(r);
      const int begin = q.begin - column, end = q.end - column;
      FFPA_UNROLL
      for (int j = 0; j < 8; ++j) {
        uint32_t keep = begin <= 8 * j && 8 * j < end ? 0xffffu : 0;
        if (begin <= 8 * j + 1 && 8 * j + 1 < end) keep |= 0xffff0000u;
        weights.x[2 * j + r] &= keep;
        if (!(keep & 1)) s.x[4 * j + 2 * r] = 0;
        if (!(keep >> 16)) s.x[4 * j + 2 * r + 1] = 0;
      }
    }
  }
  // W = dS^T of the message
  FFPA_ROLE void gradients(const Scores& s, Weights& weights, int /*block*/) {
    FFPA_UNROLL
    for (int i = 0; i < 16; ++i) {
      const float2 delta = statistics[i / 2], p = ptx::unpack<DType::kFloat16>(weights.x[i]);
      // A hidden pair has P = 0, and stays 0 whatever dP is.
      const float x = s.x[2 * i] - delta.x, y = s.x[2 * i + 1] - delta.y;
      const float lo = p.x == 0 ? 0 : p.x * (1 / kMessageScale) * x;
      const float hi = p.y == 0 ? 0 : p.y * (1 / kMessageScale) * y;
      weights.x[i] = ptx::pack<Config::kDType>(lo, hi);
    }
  }

  // --- between the CTAs: fragments, thread to thread. P travels as 2^15 P in float16: it is
  // rounded to bfloat16 only as a part of dS.
  FFPA_ROLE void send(Buffer to, Barrier ready, const Scores& s, const Weights& /*weights*/,
                      int /*block*/) {
    const uint32_t t = ptx::thread_index() % 128;
    const uint32_t peer = ptx::map_to_rank(smem + to.offset, 1 - kCta) + 16 * t;
    const uint32_t barrier = ptx::map_to_rank(smem + ready.offset, 1 - kCta);
    FFPA_UNROLL
    for (int i = 0; i < 4; ++i) {
      uint32_t x[4];
      FFPA_UNROLL
      for (int j = 0; j < 4; ++j) {
        const float* p = &s.x[8 * i + 2 * j];
        x[j] = ptx::pack<DType::kFloat16>(p[0] * kMessageScale, p[1] * kMessageScale);
      }
      ptx::st_async_v4(peer + 2048 * i, x, barrier);
    }
  }
  FFPA_ROLE void expect_message(Barrier ready) {
    if (threadIdx.x % 128 == 0) ptx::mbarrier_arrive_expect(smem + ready.offset, S::kPBytes);
  }
  FFPA_ROLE void receive(Weights& weights, Buffer from, int /*block*/) {
    const uint32_t t = ptx::thread_index() % 128;
    FFPA_UNROLL
    for (int i = 0; i < 4; ++i) {
      ptx::load_shared_v4(&weights.x[4 * i], smem + from.offset + 2048 * i + 16 * t);
    }
  }

  // --- shared memory between the warpgroups
  FFPA_ROLE void write_weights(Buffer p, const Weights& weights, int /*block*/) {
    const uint32_t t = ptx::thread_index() % 128, lane = t % 32, row = t / 32 * 16 + lane % 16;
    FFPA_UNROLL
    for (int j = 0; j < 8; j += 2) {
      ptx::stmatrix_x4(smem + p.offset + swizzle128(row, (j + lane / 16) * 8), &weights.x[2 * j]);
    }
  }
  // The tile of dS^T, as it lies in shared memory.
  FFPA_ROLE void store_weights(Buffer p, int /*block*/, int w) {
    ptx::named_barrier(1 + w, 128);
    if (threadIdx.x % 128 == 0 && params.store_ds) {
      ptx::bulk_store(params.ds + int64_t(ds_tile) * 4096, smem + p.offset, S::kPBytes);
      ptx::bulk_commit_group();
    }
  }
  FFPA_ROLE void arrive_stored(Barrier b) {
    if (threadIdx.x % 128 == 0) {
      if constexpr (kCta == 1) ptx::bulk_wait_read();
      ptx::mbarrier_arrive(smem + b.offset);
    }
  }
  FFPA_ROLE void finish_stores() {
    if (threadIdx.x % 128 == 0) ptx::bulk_wait();
  }

  // --- sums
  FFPA_ROLE float* partial(int w) const {
    const int64_t at = ptx::load_shared_int64(smem + S::kTile + offsetof(DkdvTile, partial_offset));
    return params.partial + at + w * (Config::kColumns / 2) * 128 + ptx::thread_index() % 128;
  }
  FFPA_ROLE void begin_sums(Sums& sums, int w) {
    if (params.chunk.first) {
      FFPA_UNROLL
      for (int i = 0; i < Config::kColumns / 2; ++i) sums.x[i] = 0;
      return;
    }
    const float* from = partial(w);
    FFPA_UNROLL
    for (int i = 0; i < Config::kColumns / 2; ++i) sums.x[i] = from[128 * i];
  }
  FFPA_ROLE void store(const Sums& sums, int w) {
    if (!params.chunk.last) {
      float* to = partial(w);
      FFPA_UNROLL
      for (int i = 0; i < Config::kColumns / 2; ++i) to[128 * i] = sums.x[i];
      return;
    }
    const int64_t at = ptx::load_shared_int64(smem + S::kTile + offsetof(DkdvTile, out_offset));
    store_gradient<Config>(sums.x, params.gradient[kCta], at, field(offsetof(DkdvTile, key_row)),
                           field(offsetof(DkdvTile, rows_k)), w, kCta == 0 ? 1.f : params.scale);
  }
};

}  // namespace ffpa::sm90
