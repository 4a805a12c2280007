// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The machine of roles.h on the GPU: every named step is a few instructions.
#pragma once

#include <cstddef>

#include "sm90/forward/params.h"
#include "sm90/forward/roles.h"
#include "sm90/forward/rows_roles.h"
#include "sm90/ptx/barrier.cuh"
#include "sm90/ptx/copy.cuh"
#include "sm90/ptx/memory.cuh"
#include "sm90/ptx/thread.cuh"
#include "sm90/ptx/wait.cuh"
#include "sm90/ptx/wgmma.cuh"
#include "sm90/tile/softmax.cuh"
#include "sm90/tile/swizzle.h"

namespace ffpa::sm90 {

#ifdef FFPA_TEST_FAULT
__device__ int fault_role = -1;  // its arrivals stay away: a test of the bounded waits
#endif

template <class Config_>
struct ForwardMachine {
  using Config = Config_;
  using S = typename Config::SharedMemory;
  template <int kColumns>
  struct Output {
    float x[kColumns / 2];
  };
  struct Scores {
    float x[Config::kBlockN / 2];
  };
  struct Probs {
    uint32_t x[Config::kBlockN / 4];
  };
  using Rows = RowState;
  struct Copies {
    int k_x, k_origin, v_origin, last_x, key_step;
  };

  const ForwardParams& params;
  const uint32_t smem;  // shared memory starts here
  const int role;       // consumer 0, 1, producer 0, 1, scheduler

  FFPA_ROLE ForwardMachine(const ForwardParams& p, uint32_t shared, int r)
      : params(p), smem(shared), role(r) {}

  // --- work tiles
  // The scheduler's step; false if there was no tile left.
  FFPA_ROLE bool write_tile(Buffer to, uint32_t n);
  FFPA_ROLE void write_work_tile(uint32_t to, WorkItem item);
  FFPA_ROLE KeyBlocks read_tile(Buffer tile, uint32_t n) {
    const uint32_t own = smem + S::kRoleTiles + 16 * role;  // for a WaitReport
    ptx::store_shared(own, int(n));
    ptx::store_shared(own + 4, field(tile, offsetof(WorkTile, sequence)));
    ptx::store_shared(own + 8, field(tile, offsetof(WorkTile, head)));
    ptx::store_shared(own + 12, field(tile, offsetof(WorkTile, q_row)));
    return {field(tile, offsetof(WorkTile, blocks.count)),
            field(tile, offsetof(WorkTile, blocks.full_begin)),
            field(tile, offsetof(WorkTile, blocks.full_end))};
  }
  FFPA_ROLE Copies read_copies(Buffer tile) {
    return {field(tile, offsetof(WorkTile, k_x)), field(tile, offsetof(WorkTile, k_origin)),
            field(tile, offsetof(WorkTile, v_origin)), field(tile, offsetof(WorkTile, last_x)),
            field(tile, offsetof(WorkTile, key_step))};
  }
  FFPA_ROLE int field(Buffer tile, uint32_t at) const {
    return ptx::load_shared_int(smem + tile.offset + at);
  }
  // The same in the whole warp, and said so: what depends on it can stay in uniform registers.
  FFPA_ROLE static int uniform(int x) { return __shfl_sync(~0u, x, 0); }

  // --- barriers
  FFPA_ROLE bool arrives() const {
#ifdef FFPA_TEST_FAULT
    return role != fault_role;
#else
    return true;
#endif
  }
  FFPA_ROLE void wait(Barrier b, uint32_t parity) { ptx::mbarrier_wait(smem + b.offset, parity); }
  FFPA_ROLE void arrive_one(Barrier b) {
    if (threadIdx.x % 128 == 0 && arrives()) ptx::mbarrier_arrive(smem + b.offset);
  }
  FFPA_ROLE void arrive_warps(Barrier b) {
    __syncwarp();
    if (threadIdx.x % 32 == 0 && arrives()) ptx::mbarrier_arrive(smem + b.offset);
  }
  FFPA_ROLE void arrive_all(Barrier b) {
    if (arrives()) ptx::mbarrier_arrive(smem + b.offset);
  }
  FFPA_ROLE void fence_async_proxy() { ptx::fence_proxy_async(); }

  // --- copies, by one lane of the producer's warp. The whole warp runs the role, so that ptxas
  // keeps addresses in uniform registers; in a one-lane branch each TMA instruction becomes a loop.
  FFPA_ROLE void expect(Barrier b, uint32_t bytes) {
    if (ptx::elect_one() && arrives()) ptx::mbarrier_arrive_expect(smem + b.offset, bytes);
  }
  FFPA_ROLE void load_q(Buffer to, Barrier ready, Buffer tile) {
    const int x = uniform(field(tile, offsetof(WorkTile, q_x)));
    const int origin = uniform(field(tile, offsetof(WorkTile, q_origin)));
    FFPA_NO_UNROLL
    for (int c = 0; c < Config::kKChunks; ++c) {
      load(params.q, to.offset + c * Config::kBlockM * 128, ready, 64 * c, x, origin);
    }
  }
  FFPA_ROLE void load_k(Buffer to, Barrier ready, const Copies& t, int block, int c) {
    load(params.k, to.offset, ready, 64 * c, t.k_x + block * t.key_step, t.k_origin);
  }
  // All columns of a block.
  FFPA_ROLE void load_k_block(Buffer to, Barrier ready, const Copies& t, int block) {
    FFPA_NO_UNROLL
    for (int c = 0; c < Config::kKChunks; ++c) {
      load_k({to.offset + c * Config::kBlockN * 128, 0}, ready, t, block, c);
    }
  }
  FFPA_ROLE void load_v(Buffer to, Barrier ready, const Copies& t, int block, int c, int w) {
    // Not past the last key: a box that lies outside the map as a whole faults.
    const int x = min(t.k_x + block * t.key_step + c * Config::kVRows, t.last_x);
    if (params.v_grouped) {
      if (ptx::elect_one()) {
        ptx::tma_load_4d(smem + to.offset, params.v[w], smem + ready.offset, 0, x,
                         Config::first_column(w) / 64, t.v_origin);
      }
      return;
    }
    FFPA_NO_UNROLL
    for (int g = 0; g < Config::columns(w) / 64; ++g) {
      const int column = min(Config::first_column(w) + 64 * g, params.head_dim_v - 8);
      load(params.v[w], to.offset + g * Config::kVRows * 128, ready, column, x, t.v_origin);
    }
  }
  FFPA_ROLE void load(const CUtensorMap& map, uint32_t to, Barrier ready, int column, int x,
                      int origin) {
    if (ptx::elect_one()) {
      ptx::tma_load_3d(smem + to, map, smem + ready.offset, column, x, origin);
    }
  }

  // --- tensor cores. Each of these is one wgmma group.
  template <int kLeft>
  FFPA_ROLE void wait_groups() {
    ptx::wgmma_wait_group<kLeft>();
  }
  // S += Q[64 x 64c..64c+63] K[128 x the same]^T
  FFPA_ROLE void qk(Scores& rS, Buffer q, Buffer k, int /*block*/, int c) {
    using Mma = ptx::Wgmma<Config::kBlockN, Config::kDType, false>;
    ptx::wgmma_fence();
    const uint64_t a = k_major(q.offset + c * 8192), b = k_major(k.offset);
    FFPA_UNROLL
    for (int i = 0; i < 4; ++i) {
      Mma::ss(rS.x, a + kStepKMajor * i, b + kStepKMajor * i, c + i != 0);
    }
    ptx::wgmma_commit_group();
  }
  // O += P[64 x 32c..32c+31] V[32 x kColumns]; P in shared memory, two tiles of 64 keys
  template <int kColumns>
  FFPA_ROLE void pv(Output<kColumns>& rO, Buffer p, Buffer v, int /*block*/, int c) {
    ptx::wgmma_fence();
    const uint64_t a = k_major(p.offset + c / 2 * 8192 + c % 2 * 64), b = mn_major(v.offset);
    FFPA_UNROLL
    for (int i = 0; i < 2; ++i) {
      ptx::Wgmma<kColumns, Config::kDType, true>::ss(rO.x, a + kStepKMajor * i,
                                                     b + kStepMnMajor * i, true);
    }
    ptx::wgmma_commit_group();
  }
  // the same with P in registers
  template <int kColumns>
  FFPA_ROLE void pv(Output<kColumns>& rO, const Probs& rP, Buffer v, int /*block*/, int c) {
    ptx::wgmma_fence();
    const uint64_t b = mn_major(v.offset);
    FFPA_UNROLL
    for (int i = 0; i < 2; ++i) {
      ptx::Wgmma<kColumns, Config::kDType, true>::rs(rO.x, &rP.x[4 * (2 * c + i)],
                                                     b + kStepMnMajor * i, true);
    }
    ptx::wgmma_commit_group();
  }
  // S = Q[64 rows of warpgroup w] K^T, all columns
  FFPA_ROLE void qk_block(Scores& rS, Buffer q, Buffer k, int /*block*/, int w) {
    using Mma = ptx::Wgmma<Config::kBlockN, Config::kDType, false>;
    ptx::wgmma_fence();
    const uint64_t a = k_major(q.offset + Config::first_row(w) * 128), b = k_major(k.offset);
    FFPA_UNROLL
    for (int i = 0; i < Config::kHeadDim / 16; ++i) {
      Mma::ss(rS.x, a + (Config::kBlockM * 128 >> 4) * (i / 4) + kStepKMajor * (i % 4),
              b + (Config::kBlockN * 128 >> 4) * (i / 4) + kStepKMajor * (i % 4), i != 0);
    }
    ptx::wgmma_commit_group();
  }
  // O += P V, all keys of a block
  template <int kColumns>
  FFPA_ROLE void pv_block(Output<kColumns>& rO, const Probs& rP, Buffer v, int /*block*/) {
    ptx::wgmma_fence();
    const uint64_t b = mn_major(v.offset);
    FFPA_UNROLL
    for (int i = 0; i < Config::kBlockN / 16; ++i) {
      ptx::Wgmma<kColumns, Config::kDType, true>::rs(rO.x, &rP.x[4 * i], b + kStepMnMajor * i,
                                                     true);
    }
    ptx::wgmma_commit_group();
  }
  FFPA_ROLE uint64_t k_major(uint32_t offset) const { return wgmma_descriptor(smem + offset, 16); }
  FFPA_ROLE uint64_t mn_major(uint32_t offset) const {
    return wgmma_descriptor(smem + offset, Config::kVRows * 128);
  }

  // --- softmax
  template <int kColumns>
  FFPA_ROLE void clear(Output<kColumns>& rO, Rows& rows) {
    FFPA_UNROLL
    for (int i = 0; i < kColumns / 2; ++i) rO.x[i] = 0;
    rows = empty_rows();
  }
  FFPA_ROLE bool has_softcap() const { return params.cap_scale != 0; }
  FFPA_ROLE void softcap(Scores& rS) { cap_scores(rS.x, params.cap_scale); }
  // Reads the tile again: no register holds it through the main loop.
  FFPA_ROLE void mask(Scores& rS, Buffer tile, int block) {
    const Visibility v{field(tile, offsetof(WorkTile, len_q)),
                       field(tile, offsetof(WorkTile, len_k)), params.window_left,
                       params.window_right};
    mask_scores(rS.x, v, field(tile, offsetof(WorkTile, q_row)) + Config::first_row(role),
                field(tile, offsetof(WorkTile, first_key)) +
                    block * field(tile, offsetof(WorkTile, key_step)),
                Lane::of(ptx::thread_index()));
  }
  template <class HalfWay>
  FFPA_ROLE void softmax(const Scores& rS, Probs& rP, Rows& mine, const Rows& rows,
                         HalfWay half_way) {
    softmax_block<Config::kDType>(rS.x, rP.x, mine, rows, params.scale, half_way);
  }
  // No wgmma may be in flight on rO.
  template <int kColumns>
  FFPA_ROLE void rescale(Output<kColumns>& rO, Rows& rows, const Rows& next) {
    rescale_output(rO.x, rows, next);
  }

  // The two halves of softmax: a product may read rP until `pack`.
  FFPA_ROLE void exponentiate(Scores& rS, Rows& mine, const Rows& rows) {
    exponentiate_block(rS.x, mine, rows, params.scale);
  }
  FFPA_ROLE void pack(Probs& rP, const Scores& rS) { pack_block<Config::kDType>(rS.x, rP.x); }
  FFPA_ROLE void sum_rows(Rows& rows) {
    rows.sum[0] = quad_sum(rows.sum[0]);
    rows.sum[1] = quad_sum(rows.sum[1]);
  }

  // --- shared memory between the warpgroups
  // K-major tiles of 64 keys, 128-byte swizzle.
  FFPA_ROLE void write_p(Buffer p, const Probs& rP, int /*block*/) {
    const uint32_t t = ptx::thread_index() % 128, lane = t % 32, row = t / 32 * 16 + lane % 16;
    FFPA_UNROLL
    for (int j = 0; j < 16; j += 2) {  // 16 rows x 16 keys at a time
      const uint32_t at = swizzle128(row, (j % 8 + lane / 16) * 8);
      ptx::stmatrix_x4(smem + p.offset + j / 8 * 8192 + at, &rP.x[2 * j]);
    }
  }
  FFPA_ROLE void write_row_max(Buffer b, const Rows& mine, int /*block*/) { write(b, mine.max); }
  FFPA_ROLE Rows read_row_max(Buffer b, int /*block*/) {
    const uint32_t from = smem + b.offset + 4 * Lane::of(threadIdx.x).row;
    return {{ptx::load_shared(from), ptx::load_shared(from + 32)}, {0, 0}};
  }
  FFPA_ROLE void write_row_sum(Buffer b, Rows& rows) {
    sum_rows(rows);
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

  // --- results
  template <int kColumns>
  FFPA_ROLE void store(const Output<kColumns>& rO, const Rows& rows, Buffer tile, int w);
};

}  // namespace ffpa::sm90

#include "sm90/forward/schedule.cuh"
#include "sm90/forward/store.cuh"
