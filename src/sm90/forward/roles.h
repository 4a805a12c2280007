// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The roles of the forward kernel: its whole protocol. Compiled by nvcc for the GPU and by the host
// compiler for the checker, over a machine M that provides the named steps (forward/machine.cuh,
// tests/protocol/forward_machine.h).
#pragma once

#include <type_traits>

#include "sm90/forward/config.h"
#include "sm90/pipeline/pipeline.h"
#include "sm90/pipeline/walk.h"

namespace ffpa::sm90 {

// The scheduler: one warp that decides what the CTA works on next, one tile ahead of the others.
// The last tile it hands out says that the work is done.
template <class M>
FFPA_ROLE void schedule(M& m) {
  using S = typename M::Config::SharedMemory;
  bool more = true;
  for (uint32_t n = 0; more; ++n) {
    const uint32_t s = n % S::kTileSlots;
    m.wait(S::tile_free(s), n / S::kTileSlots % 2 ^ 1);
    more = m.write_tile(S::tile(s), n);
    m.arrive_warps(S::tile_ready(s));
  }
}

// The n-th tile of the CTA, for one of the other roles. Trip counts come back as values that the
// compiler knows to be the same in the whole warp.
template <class M>
FFPA_ROLE KeyBlocks wait_tile(M& m, uint32_t n) {
  using S = typename M::Config::SharedMemory;
  const uint32_t s = n % S::kTileSlots;
  m.wait(S::tile_ready(s), n / S::kTileSlots % 2);
  const KeyBlocks b = m.read_tile(S::tile(s), n);
  return {m.uniform(b.count), m.uniform(b.full_begin), m.uniform(b.full_end)};
}

// Producer w: one warp that keeps the ring of warpgroup w full, in the order in which it is read.
// Producer 0 also loads Q.
template <class M>
FFPA_ROLE void produce(M& m, const int w) {
  using Config = typename M::Config;
  using S = typename Config::SharedMemory;
  RingWriter<M> ring(m, w);

  for (uint32_t n = 0;; ++n) {
    const KeyBlocks blocks = wait_tile(m, n);
    const auto copies = m.read_copies(S::tile(n % S::kTileSlots));
    if (w == 0 && !blocks.done()) {
      m.wait(S::q_free(), n % 2 ^ 1);
      m.expect(S::q_ready(), S::q().bytes);
      m.load_q(S::q(), S::q_ready(), S::tile(n % S::kTileSlots));
    }
    m.arrive_warps(S::tile_free(n % S::kTileSlots));
    if (blocks.done()) break;

    const auto load_k = [&](int block) {
      const Pass pass = ring.pass(Config::kKPass);
      FFPA_NO_UNROLL
      for (int c = 0; c < Config::kKChunks; ++c) {
        ring.fill(pass, c, Config::kKBytes,
                  [&](Buffer to, Barrier ready) { m.load_k(to, ready, copies, block, c); });
      }
      for (int c = Config::kKChunks; c < Config::kKPass; ++c) {
        ring.fill(pass, c, 0, [](Buffer, Barrier) {});
      }
    };
    const auto load_v = [&](int block) {
      const Pass pass = ring.pass(Config::kVChunks);
      FFPA_NO_UNROLL
      for (int c = 0; c < Config::kVChunks; ++c) {
        ring.fill(pass, c, Config::v_bytes(w),
                  [&](Buffer to, Barrier ready) { m.load_v(to, ready, copies, block, c, w); });
      }
    };
    walk(
        blocks.count, w,
        [&](int block, auto has_other) {
          load_k(block);
          if constexpr (decltype(has_other)::value) load_v(block - 1);
          load_v(block);
        },
        load_v);
  }
}

// Consumer w: a warpgroup that computes S and P of its own key blocks, shares P, and accumulates
// kColumns columns of O over all key blocks. In registers:
//   rO 64 x kColumns fp32, rS 64 x 128 fp32, rP 64 x 128 halves, rows: max and sum of each row.
// The running max travels with P through both warpgroups, so that rO always has one scale.
template <class M, int kColumns>
class Consumer {
  using Config = typename M::Config;
  using S = typename Config::SharedMemory;
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
  typename M::template Output<kColumns> rO;
  Rows rows;

  // S = Q K^T. Leaves the last chunk in flight.
  FFPA_ROLE void qk(Scores& rS, Pass k, int block) {
    FFPA_UNROLL
    for (int c = 0; c < kK; ++c) {
      m.qk(rS, S::q(), ring.take(k, c, Config::kKBytes), block, c);
      if (c > 0) ring.template hand_back<1>(k, c - 1, c);
    }
    FFPA_UNROLL
    for (int c = kK; c < Config::kKPass; ++c) ring.take(k, c, 0);
  }

  // The other warpgroup's P of `block` is there: bring O to its scale.
  FFPA_ROLE void wait_other_p(int block) {
    p_ready.pass(m);
    m.rescale(rO, rows, m.read_row_max(S::row_max(other), block));
  }

  FFPA_ROLE void pv_other(Pass v, int block, int c) {
    m.pv(rO, S::p(other), ring.take(v, c, Config::v_bytes(w)), block, c);
  }

  FFPA_ROLE void publish_p(const Probs& rP, const Rows& mine, int block) {
    p_free.pass(m);
    m.write_p(S::p(w), rP, block);
    m.write_row_max(S::row_max(w), mine, block);
    m.fence_async_proxy();  // the other warpgroup's wgmma reads P
    m.arrive_all(S::p_ready(w));
  }

  // O += P V with the own P, from registers.
  FFPA_ROLE void pv_own(const Probs& rP, int block) {
    const Pass v = ring.pass(kV);
    FFPA_UNROLL
    for (int c = 0; c < kV; ++c) {
      m.pv(rO, rP, ring.take(v, c, Config::v_bytes(w)), block, c);
      if (c > 0) ring.template hand_back<1>(v, c - 1, c);
    }
    ring.template hand_back<0>(v, kV - 1, kV);
  }

  // One own key block, and the other warpgroup's block before it.
  template <bool kHasOther>
  FFPA_ROLE void step(Buffer tile, int block, KeyBlocks blocks) {
    Scores rS;
    Probs rP;
    Rows mine;
    const Pass k = ring.pass(Config::kKPass);
    const Pass v = ring.pass(kHasOther ? kV : 0);  // of the other's block
    qk(rS, k, block);
    if constexpr (kHasOther) {
      wait_other_p(block - 1);
      pv_other(v, block - 1, 0);
      ring.template hand_back<1>(k, kK - 1, Config::kKPass);
      FFPA_UNROLL
      for (int c = 1; c < kV; ++c) pv_other(v, block - 1, c);
    } else {
      ring.template hand_back<0>(k, kK - 1, Config::kKPass);
    }
    if (block + 2 >= blocks.count) m.arrive_one(S::q_free());
    if (m.has_softcap()) m.softcap(rS);
    if (!blocks.full(block)) m.mask(rS, tile, block);
    m.softmax(rS, rP, mine, rows, [&] {  // half-way: V slots go back early
      if constexpr (kHasOther) ring.template hand_back<kV - kEarlyV>(v, 0, kEarlyV);
    });
    publish_p(rP, mine, block);
    if constexpr (kHasOther) {
      ring.template hand_back<0>(v, kEarlyV, kV);
      m.arrive_warps(S::p_free(other));
    }
    m.rescale(rO, rows, mine);
    pv_own(rP, block);
  }

  // The tile ends with a block of the other warpgroup.
  FFPA_ROLE void absorb(int block) {
    const Pass v = ring.pass(kV);
    wait_other_p(block);
    FFPA_UNROLL
    for (int c = 0; c < kV; ++c) pv_other(v, block, c);
    ring.template hand_back<0>(v, 0, kV);
    m.arrive_warps(S::p_free(other));
  }

  // Each warpgroup has summed its own blocks only. The sums alternate between two places: a
  // warpgroup may finish the next tile while the other still reads the sums of this one.
  FFPA_ROLE void finish(Buffer tile, uint32_t n) {
    const uint32_t parity = n % 2;
    m.write_row_sum(S::row_sum(w, parity), rows);
    m.arrive_all(S::sums_ready());
    m.wait(S::sums_ready(), parity);
    m.read_row_sums(rows, S::row_sum(0, parity), S::row_sum(1, parity));
    m.store(rO, rows, tile, w);
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
    for (uint32_t n = 0;; ++n) {
      const Buffer tile = S::tile(n % S::kTileSlots);
      const KeyBlocks blocks = wait_tile(m, n);
      if (!blocks.done()) {
        m.clear(rO, rows);
        m.wait(S::q_ready(), n % 2);
        walk(
            blocks.count, w,
            [&](int block, auto has_other) {
              step<decltype(has_other)::value>(tile, block, blocks);
            },
            [&](int block) { absorb(block); });
        if (blocks.count <= w) m.arrive_one(S::q_free());  // no own block did it
        finish(tile, n);
      }
      m.arrive_warps(S::tile_free(n % S::kTileSlots));
      if (blocks.done()) break;
    }
  }
};

}  // namespace ffpa::sm90
