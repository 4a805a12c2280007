// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Who may touch a buffer, and when. Written once over a machine M: on the GPU `wait` and `arrive`
// are mbarrier instructions, on the host they are recorded for the checker.
#pragma once

#include "sm90/pipeline/barrier.h"

namespace ffpa::sm90 {

enum class First : uint32_t {
  kMustHappen = 0,  // the first pass waits for the first completion of the barrier
  kIsOpen = 1,      // the first pass goes through: the buffer starts free
};

// One role's view of one barrier that it passes once per use.
struct Gate {
  Barrier barrier;
  uint32_t parity;

  FFPA_ROLE Gate(Barrier b, First first) : barrier(b), parity(uint32_t(first)) {}

  template <class M>
  FFPA_ROLE void pass(M& m) {
    m.wait(barrier, parity);
    parity ^= 1;
  }
};

// A ring of kStages slots between producer and consumer w. A pass (the K chunks or the V chunks of
// one block) is a multiple of kStages long and begins at slot 0: a chunk's slot is a compile-time
// constant wherever the loop over chunks is unrolled, and the parity is all the state there is.
template <class M>
struct RingSide {
  using S = typename M::SharedMemory;
  static constexpr int kStages = M::Config::kStages;
  static_assert(M::Config::kKChunks % kStages == 0 && M::Config::kVChunks % kStages == 0,
                "a pass begins at slot 0");
  M& m;
  const int w;
  uint32_t parity;

  FFPA_ROLE RingSide(M& machine, int warpgroup, First first)
      : m(machine), w(warpgroup), parity(uint32_t(first)) {}
  FFPA_ROLE void advance(int chunk) {
    if (chunk % kStages == kStages - 1) parity ^= 1;
  }
};

template <class M>
struct RingWriter : RingSide<M> {
  using S = typename M::SharedMemory;
  FFPA_ROLE RingWriter(M& machine, int w) : RingSide<M>(machine, w, First::kIsOpen) {}

  // Waits for the chunk's slot; `load(buffer, ready)` then starts the copy that fills all of it.
  template <class Load>
  FFPA_ROLE void fill(int chunk, Load load) {
    const int s = chunk % this->kStages;
    this->m.wait(S::slot_free(this->w, s), this->parity);
    this->m.expect(S::slot_ready(this->w, s), S::slot(this->w, s).bytes);
    load(S::slot(this->w, s), S::slot_ready(this->w, s));
    this->advance(chunk);
  }
};

template <class M>
struct RingReader : RingSide<M> {
  using S = typename M::SharedMemory;
  FFPA_ROLE RingReader(M& machine, int w) : RingSide<M>(machine, w, First::kMustHappen) {}

  // Waits for the chunk.
  FFPA_ROLE Buffer take(int chunk) {
    const int s = chunk % this->kStages;
    this->m.wait(S::slot_ready(this->w, s), this->parity);
    this->advance(chunk);
    return S::slot(this->w, s);
  }

  // Waits until only the kHeld youngest wgmma groups run, then hands back the chunks [from, to) of
  // the groups before them.
  template <int kHeld>
  FFPA_ROLE void hand_back(int from, int to) {
    this->m.template wait_groups<kHeld>();
    FFPA_UNROLL
    for (int c = from; c < to; ++c) this->m.arrive_one(S::slot_free(this->w, c % this->kStages));
  }
};

}  // namespace ffpa::sm90
