// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The roles of the forward kernels for head dims up to 256, as roles.h has them for larger ones.
// The scheduler is the same.
#pragma once

#include "sm90/forward/roles.h"
#include "sm90/forward/rows_config.h"

namespace ffpa::sm90 {

// Producer 0 loads Q and the blocks of K, producer 1 those of V.
template <class M>
FFPA_ROLE void produce_rows(M& m, const int ring) {
  using Config = typename M::Config;
  using S = typename Config::SharedMemory;
  RingWriter<M> writer(m, ring);

  for (uint32_t n = 0;; ++n) {
    const KeyBlocks blocks = wait_tile(m, n);
    const auto copies = m.read_copies(S::tile(n % S::kTileSlots));
    if (ring == 0 && !blocks.done()) {
      m.wait(S::q_free(), n % 2 ^ 1);
      m.expect(S::q_ready(), S::q().bytes);
      m.load_q(S::q(), S::q_ready(), S::tile(n % S::kTileSlots));
    }
    m.arrive_warps(S::tile_free(n % S::kTileSlots));
    if (blocks.done()) break;

    FFPA_NO_UNROLL
    for (int block = 0; block < blocks.count; ++block) {
      writer.fill(writer.pass(1), 0, ring == 0 ? Config::kKBytes : Config::kVBytes,
                  [&](Buffer to, Barrier ready) {
                    if (ring == 0) {
                      m.load_k_block(to, ready, copies, block);
                    } else {
                      m.load_v(to, ready, copies, block, 0, 0);
                    }
                  });
    }
  }
}

// Consumer w: a warpgroup with 64 of the rows. In registers: rO 64 x columns of V fp32, rS 64 x
// block fp32, rP 64 x block halves, rows: max and sum of each row.
template <class M>
class RowsConsumer {
  using Config = typename M::Config;
  using S = typename Config::SharedMemory;

  M& m;
  const int w;
  RingReader<M> keys, values;
  Gate turn;
  typename M::template Output<Config::kHeadDimV> rO;
  typename M::Scores rS;
  typename M::Probs rP;
  typename M::Rows rows;

  FFPA_ROLE void wait_turn() {
    if constexpr (Config::kTakeTurns) turn.pass(m);
  }
  FFPA_ROLE void end_turn() {
    if constexpr (Config::kTakeTurns) m.arrive_one(S::turn(1 - w));
  }

  FFPA_ROLE Pass qk(int block) {
    const Pass k = keys.pass(1);
    m.qk_block(rS, S::q(), keys.take(k, 0, Config::kKBytes), block, w);
    return k;
  }
  FFPA_ROLE Pass pv(int block) {
    const Pass v = values.pass(1);
    m.pv_block(rO, rP, values.take(v, 0, Config::kVBytes), block);
    return v;
  }

  // S is there: K goes back, after the last block Q too.
  FFPA_ROLE void finish_scores(Buffer tile, int block, KeyBlocks blocks) {
    if (block + 1 == blocks.count) m.arrive_one(S::q_free());
    if (m.has_softcap()) m.softcap(rS);
    if (!blocks.full(block)) m.mask(rS, tile, block);
  }

  FFPA_ROLE void first_block(Buffer tile, KeyBlocks blocks) {
    typename M::Rows next;
    wait_turn();
    const Pass k = qk(0);
    end_turn();
    keys.template hand_back<0>(k, 0, 1);
    finish_scores(tile, 0, blocks);
    m.exponentiate(rS, next, rows);
    m.pack(rP, rS);
    m.rescale(rO, rows, next);
  }

  // Q K^T of this block, P V of the one before; that runs under the softmax of this one.
  FFPA_ROLE void step(Buffer tile, int block, KeyBlocks blocks) {
    typename M::Rows next;
    wait_turn();
    const Pass k = qk(block);
    const Pass v = pv(block - 1);
    end_turn();
    keys.template hand_back<1>(k, 0, 1);
    finish_scores(tile, block, blocks);
    m.exponentiate(rS, next, rows);
    values.template hand_back<0>(v, 0, 1);
    m.pack(rP, rS);
    m.rescale(rO, rows, next);
  }

  FFPA_ROLE void run_tile(Buffer tile, KeyBlocks blocks) {
    if (blocks.count == 0) {
      m.arrive_one(S::q_free());
      return;
    }
    first_block(tile, blocks);
    FFPA_NO_UNROLL
    for (int block = 1; block < blocks.count; ++block) step(tile, block, blocks);
    const Pass v = pv(blocks.count - 1);
    values.template hand_back<0>(v, 0, 1);
  }

 public:
  FFPA_ROLE RowsConsumer(M& machine, int warpgroup)
      : m(machine),
        w(warpgroup),
        keys(machine, 0),
        values(machine, 1),
        turn(S::turn(warpgroup), warpgroup == 0 ? First::kIsOpen : First::kMustHappen) {}

  FFPA_ROLE void run() {
    for (uint32_t n = 0;; ++n) {
      const Buffer tile = S::tile(n % S::kTileSlots);
      const KeyBlocks blocks = wait_tile(m, n);
      if (!blocks.done()) {
        m.clear(rO, rows);
        m.wait(S::q_ready(), n % 2);
        run_tile(tile, blocks);
        m.sum_rows(rows);
        m.store(rO, rows, tile, w);
      }
      m.arrive_warps(S::tile_free(n % S::kTileSlots));
      if (blocks.done()) break;
    }
  }
};

}  // namespace ffpa::sm90
