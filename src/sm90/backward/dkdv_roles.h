// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The roles of the dkdv kernel: its whole protocol, over a machine M that provides the named steps.
// Both CTAs of a pair walk the same blocks: the query blocks that see the key tile, head after
// head.
#pragma once

#include "sm90/backward/config.h"
#include "sm90/pipeline/pipeline.h"
#include "sm90/pipeline/walk.h"

namespace ffpa::sm90 {

// Producer w: one warp that keeps the ring of warpgroup w full, in the order in which it is read.
// Producer 0 also loads the CTA's own rows.
template <class M>
FFPA_ROLE void produce_dkdv(M& m, const int w) {
  using Config = typename M::Config;
  using S = typename Config::SharedMemory;
  RingWriter<M> ring(m, w);
  const int count = m.block_count();
  if (w == 0 && count > 0) {
    m.expect(S::x_ready(), S::kXBytes);
    m.load_x(S::x(), S::x_ready());
  }
  const auto load_scores = [&](int block) {
    const Pass pass = ring.pass(Config::kKPass);
    FFPA_NO_UNROLL
    for (int c = 0; c < Config::kKPass; ++c) {
      ring.fill(pass, c, Config::kScoreBytes,
                [&](Buffer to, Barrier ready) { m.load_scores(to, ready, block, c); });
    }
  };
  const auto load_values = [&](int block) {
    const Pass pass = ring.pass(Config::kVChunks);
    FFPA_NO_UNROLL
    for (int c = 0; c < Config::kVChunks; ++c) {
      ring.fill(pass, c, Config::kValueBytes,
                [&](Buffer to, Barrier ready) { m.load_values(to, ready, block, c, w); });
    }
  };
  walk(
      count, w,
      [&](int block, auto has_other) {
        load_scores(block);
        if constexpr (decltype(has_other)::value) load_values(block - 1);
        load_values(block);
      },
      load_values);
}

// Consumer w of CTA kCta. W is P^T in CTA 0 and dS^T in CTA 1. In registers: the sums 64 x kColumns
// fp32, the scores 64 x 64 fp32 and W 64 x 64 halves.
template <class M, int kCta>
class DkdvConsumer {
  using Config = typename M::Config;
  using S = typename Config::SharedMemory;
  using Scores = typename M::Scores;
  using Weights = typename M::Weights;
  static constexpr int kK = Config::kKPass, kV = Config::kVChunks;

  M& m;
  const int w, other;
  RingReader<M> ring;
  Gate p_ready, p_free, message;
  typename M::Sums sums;

  // Leaves the last chunk in flight.
  FFPA_ROLE void compute_scores(Scores& s, Pass pass, int block) {
    FFPA_UNROLL
    for (int c = 0; c < kK; ++c) {
      m.scores(s, S::x(), ring.take(pass, c, Config::kScoreBytes), block, c);
      if (c > 0) ring.template hand_back<1>(pass, c - 1, c);
    }
  }

  FFPA_ROLE void add_other(Pass v, int block, int c) {
    m.add(sums, S::p(other), ring.take(v, c, Config::kValueBytes), block, c);
  }

  // P^T goes to the peer, which makes dS^T of it.
  FFPA_ROLE void exchange(Scores& s, Weights& weights, int block) {
    if constexpr (kCta == 0) {
      m.probabilities(s, weights, block);
      message.pass(m);
      m.send(S::received(w), S::message_ready(w), s, weights, block);
    } else {
      m.expect_message(S::message_ready(w));
      message.pass(m);
      m.receive(weights, S::received(w), block);
      m.arrive_warps_of_peer(S::message_free(w));
      m.gradients(s, weights, block);
    }
  }

  FFPA_ROLE void publish(const Weights& weights, int block, bool first) {
    if (!first) m.arrive_stored(S::p_free(w));  // the tile before has been read by its store
    p_free.pass(m);
    m.write_weights(S::p(w), weights, block);
    m.fence_async_proxy();  // the other warpgroup's wgmma reads it
    m.arrive_all(S::p_ready(w));
    if constexpr (kCta == 1) m.store_weights(S::p(w), block, w);
  }

  FFPA_ROLE void add_own(const Weights& weights, int block) {
    const Pass v = ring.pass(kV);
    FFPA_UNROLL
    for (int c = 0; c < kV; ++c) {
      m.add(sums, weights, ring.take(v, c, Config::kValueBytes), block, c);
      if (c > 0) ring.template hand_back<1>(v, c - 1, c);
    }
    ring.template hand_back<0>(v, kV - 1, kV);
  }

  template <bool kHasOther>
  FFPA_ROLE void step(int block) {
    Scores s;
    Weights weights;
    const Pass k = ring.pass(kK);
    const Pass v = ring.pass(kHasOther ? kV : 0);  // of the other's block
    m.begin_block(block);
    compute_scores(s, k, block);
    if constexpr (kHasOther) {
      p_ready.pass(m);
      add_other(v, block - 1, 0);
      ring.template hand_back<1>(k, kK - 1, kK);
      FFPA_UNROLL
      for (int c = 1; c < kV; ++c) add_other(v, block - 1, c);
    } else {
      ring.template hand_back<0>(k, kK - 1, kK);
    }
    exchange(s, weights, block);
    publish(weights, block, block < 2);
    if constexpr (kHasOther) {
      ring.template hand_back<0>(v, 0, kV);
      m.arrive_warps(S::p_free(other));
    }
    add_own(weights, block);
  }

  // The tile ends with a block of the other warpgroup.
  FFPA_ROLE void absorb(int block) {
    const Pass v = ring.pass(kV);
    p_ready.pass(m);
    FFPA_UNROLL
    for (int c = 0; c < kV; ++c) add_other(v, block, c);
    ring.template hand_back<0>(v, 0, kV);
    m.arrive_warps(S::p_free(other));
  }

 public:
  FFPA_ROLE DkdvConsumer(M& machine, int warpgroup)
      : m(machine),
        w(warpgroup),
        other(1 - warpgroup),
        ring(machine, warpgroup),
        p_ready(S::p_ready(1 - warpgroup), First::kMustHappen),
        p_free(S::p_free(warpgroup), First::kIsOpen),
        message(kCta == 0 ? S::message_free(warpgroup) : S::message_ready(warpgroup),
                kCta == 0 ? First::kIsOpen : First::kMustHappen) {}

  FFPA_ROLE void run() {
    const int count = m.block_count();
    m.begin_sums(sums, w);
    if (count > 0) m.wait(S::x_ready(), 0);
    walk(
        count, w, [&](int block, auto has_other) { step<decltype(has_other)::value>(block); },
        [&](int block) { absorb(block); });
    if (count > w) m.arrive_stored(S::p_free(w));
    if constexpr (kCta == 1) m.finish_stores();
    m.store(sums, w);
  }
};

}  // namespace ffpa::sm90
