// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The roles of the forward kernel: its whole protocol. Compiled by nvcc for the GPU and by g++ for
// the checker, over a machine M that provides the named steps (DeviceMachine, HostMachine).
#pragma once

#include "sm90/forward/work.h"
#include "sm90/pipeline/pipeline.h"

namespace ffpa::sm90 {

// The trip counts of a tile, as values that the compiler knows to be the same in the whole warp.
template <class M>
FFPA_ROLE KeyBlocks uniform_blocks(M& m, const WorkTile& tile) {
  const KeyBlocks blocks =
      visible_key_blocks<typename M::Config>(tile, m.window_left(), m.window_right());
  return {m.uniform(blocks.begin), m.uniform(blocks.end), m.uniform(blocks.full_begin),
          m.uniform(blocks.full_end)};
}

// Producer w: one warp that keeps the ring of warpgroup w full, in the order in which it is read.
// Producer 0 also loads Q.
template <class M>
FFPA_ROLE void produce(M& m, const int w) {
  using Config = typename M::Config;
  using S = typename M::SharedMemory;
  RingWriter<M> ring(m, w);

  for (int n = 0; m.has_tile(n); ++n) {
    const WorkTile tile = m.enter(n);

    const auto load_k = [&](int block) {
      FFPA_NO_UNROLL
      for (int c = 0; c < Config::kKChunks; ++c) {
        ring.fill(c, [&](Buffer to, Barrier ready) { m.load_k(to, ready, tile, block, c); });
      }
    };
    const auto load_v = [&](int block) {
      FFPA_NO_UNROLL
      for (int c = 0; c < Config::kVChunks; ++c) {
        ring.fill(c, [&](Buffer to, Barrier ready) { m.load_v(to, ready, tile, block, c, w); });
      }
    };

    if (w == 0) {
      m.wait(S::q_free(), n % 2 ^ 1);
      m.expect(S::q_ready(), S::q().bytes);
      m.load_q(S::q(), S::q_ready(), tile);
    }
    walk(
        uniform_blocks(m, tile), w,
        [&](int block, auto has_other) {
          load_k(block);
          if constexpr (decltype(has_other)::value) load_v(block - 1);
          load_v(block);
        },
        load_v);
  }
}

// Consumer w: a warpgroup that computes S and P of its own key blocks, shares P, and accumulates
// the columns [256 w, 256 w + 256) of O over all key blocks. In registers:
//   rO 64 x 256 fp32, rS 64 x 128 fp32, rP 64 x 128 bf16, rows: running max and sum of each row.
// The running max travels with P through both warpgroups, so that rO always has one scale.
template <class M>
class Consumer {
  using Config = typename M::Config;
  using S = typename M::SharedMemory;
  using Scores = typename M::Scores;
  using Probs = typename M::Probs;
  using Rows = typename M::Rows;
  static constexpr int kK = Config::kKChunks, kV = Config::kVChunks, kEarlyV = Config::kEarlyV;
  static_assert(kV <= Config::kStages,
                "the other's P V holds all its V slots until half of softmax");

  M& m;
  const int w, other;
  RingReader<M> ring;
  Gate p_ready, p_free;
  typename M::Output rO;
  Rows rows;

  // S = Q K^T. Leaves the last chunk in flight.
  FFPA_ROLE void qk(Scores& rS, int block) {
    FFPA_UNROLL
    for (int c = 0; c < kK; ++c) {
      m.qk(rS, S::q(), ring.take(c), block, c);
      if (c > 0) ring.template hand_back<1>(c - 1, c);
    }
  }

  // The other warpgroup's P of `block` is there: bring O to its scale.
  FFPA_ROLE void wait_other_p(int block) {
    p_ready.pass(m);
    m.rescale(rO, rows, m.read_row_max(S::row_max(other), block));
  }

  FFPA_ROLE void pv_other(int block, int c) { m.pv(rO, S::p(other), ring.take(c), block, c); }

  FFPA_ROLE void publish_p(const Probs& rP, const Rows& mine, int block) {
    p_free.pass(m);
    m.write_p(S::p(w), rP, block);
    m.write_row_max(S::row_max(w), mine, block);
    m.fence_async_proxy();  // the other warpgroup's wgmma reads P
    m.arrive_all(S::p_ready(w));
  }

  // O += P V with the own P, from registers.
  FFPA_ROLE void pv_own(const Probs& rP, int block) {
    FFPA_UNROLL
    for (int c = 0; c < kV; ++c) {
      m.pv(rO, rP, ring.take(c), block, c);
      if (c > 0) ring.template hand_back<1>(c - 1, c);
    }
    ring.template hand_back<0>(kV - 1, kV);
  }

  // One own key block, and the other warpgroup's block before it.
  template <bool kHasOther>
  FFPA_ROLE void step(int n, int block, KeyBlocks blocks) {
    Scores rS;
    Probs rP;
    Rows mine;
    qk(rS, block);
    if constexpr (kHasOther) {
      wait_other_p(block - 1);
      pv_other(block - 1, 0);
      ring.template hand_back<1>(kK - 1, kK);
      FFPA_UNROLL
      for (int c = 1; c < kV; ++c) pv_other(block - 1, c);
    } else {
      ring.template hand_back<0>(kK - 1, kK);
    }
    if (!blocks.full(block)) m.mask(rS, n, block);
    m.softmax(rS, rP, mine, rows, [&] {  // half-way: V slots go back early
      if constexpr (kHasOther) ring.template hand_back<kV - kEarlyV>(0, kEarlyV);
    });
    publish_p(rP, mine, block);
    if constexpr (kHasOther) {
      ring.template hand_back<0>(kEarlyV, kV);
      m.arrive_warps(S::p_free(other));
    }
    m.rescale(rO, rows, mine);
    pv_own(rP, block);
  }

  // The tile ends with a block of the other warpgroup.
  FFPA_ROLE void absorb(int block) {
    wait_other_p(block);
    FFPA_UNROLL
    for (int c = 0; c < kV; ++c) pv_other(block, c);
    ring.template hand_back<0>(0, kV);
    m.arrive_warps(S::p_free(other));
  }

  // Each warpgroup has summed its own blocks only. The sums alternate between two places: a
  // warpgroup may finish the next tile while the other still reads the sums of this one.
  FFPA_ROLE void finish(int n) {
    const uint32_t parity = n % 2;
    m.write_row_sum(S::row_sum(w, parity), rows);
    m.arrive_all(S::sums_ready());
    m.wait(S::sums_ready(), parity);
    m.read_row_sums(rows, S::row_sum(0, parity), S::row_sum(1, parity));
    m.store(rO, rows, n, w);
  }

 public:
  FFPA_ROLE Consumer(M& machine, int warpgroup)
      : m(machine),
        w(warpgroup),
        other(1 - warpgroup),
        ring(machine, warpgroup),
        p_ready(S::p_ready(1 - warpgroup), First::kMustHappen),
        p_free(S::p_free(warpgroup), First::kIsOpen) {}

  // A tile with no visible key block goes the same way, with zero steps: no role has an early exit.
  FFPA_ROLE void run() {
    for (int n = 0; m.has_tile(n); ++n) {
      const uint32_t parity = n % 2;  // of the events that happen once per tile
      const KeyBlocks blocks = uniform_blocks(m, m.enter(n));
      m.clear(rO, rows);
      m.wait(S::q_ready(), parity);
      walk(
          blocks, w,
          [&](int block, auto has_other) { step<decltype(has_other)::value>(n, block, blocks); },
          [&](int block) { absorb(block); });
      m.arrive_one(S::q_free());
      finish(n);
    }
  }
};

}  // namespace ffpa::sm90
