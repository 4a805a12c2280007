// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The roles of the dq kernel, over a machine M. Slot i % kStages holds step i: the dS tiles of both
// query blocks, where they exist, and the keys.
#pragma once

#include "sm90/backward/config.h"
#include "sm90/pipeline/pipeline.h"

namespace ffpa::sm90 {

template <class M>
FFPA_ROLE void produce_dq(M& m) {
  using S = typename M::Config::SharedMemory;
  constexpr uint32_t kStages = M::Config::kStages;
  const int count = m.step_count();
  FFPA_NO_UNROLL
  for (int i = 0; i < count; ++i) {
    const uint32_t s = i % kStages;
    m.wait(S::slot_free(s), i / kStages % 2 ^ 1);
    m.load(s, S::slot_ready(s), i);
  }
}

// Consumer w: 64 query rows. It skips the product where its block does not see the keys, but never
// a wait or an arrival. The last slot goes back after the store, whosever it was: a branch before
// it makes ptxas serialise the products.
template <class M>
FFPA_ROLE void consume_dq(M& m, const int w) {
  using S = typename M::Config::SharedMemory;
  constexpr uint32_t kStages = M::Config::kStages;
  typename M::Sums sums;
  m.clear(sums);
  const int count = m.step_count(), begin = m.own_begin(w), end = m.own_end(w);
  FFPA_NO_UNROLL
  for (int i = 0; i < count; ++i) {
    const uint32_t s = i % kStages;
    m.wait(S::slot_ready(s), i / kStages % 2);
    if (begin <= i && i < end) {
      m.add(sums, S::ds(s, w), S::keys(s), i);
      m.template wait_groups<1>();
      if (i > begin) m.arrive_one(S::slot_free((i - 1) % kStages));
      continue;
    }
    if (i == end && begin < end) {
      m.template wait_groups<0>();
      m.arrive_one(S::slot_free((i - 1) % kStages));
    }
    if (i + 1 < count) m.arrive_one(S::slot_free(s));
  }
  m.template wait_groups<0>();
  m.store(sums, w);
  if (count > 0) m.arrive_one(S::slot_free((count - 1) % kStages));
}

}  // namespace ffpa::sm90
