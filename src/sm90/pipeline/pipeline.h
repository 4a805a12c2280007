// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Who may touch a buffer, and when. Written once over a machine M: on the GPU `wait` and `arrive`
// are mbarrier instructions, on the host they are recorded for the checker.
#pragma once

#include "sm90/pipeline/storage.h"

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

// A run of chunks through a ring: those of one block of K or of V.
struct Pass {
  uint32_t start;  // position of its first chunk; RingSide::kAligned: rounds before it, modulo 2
};

// A ring of kStages slots between producer and consumer w; chunk i of all that ever pass lies in
// slot i % kStages. Where every pass is a multiple of kStages long, a chunk's slot is a
// compile-time constant wherever the loop over chunks is unrolled.
template <class M>
class RingSide {
 public:
  using S = typename M::Config::SharedMemory;
  static constexpr uint32_t kStages = M::Config::kStages;
  static constexpr bool kAligned =
      M::Config::kKPass % M::Config::kStages == 0 && M::Config::kVChunks % M::Config::kStages == 0;

  FFPA_ROLE RingSide(M& machine, int warpgroup) : m(machine), w(warpgroup), next_(0) {}

  // The next `chunks` chunks.
  FFPA_ROLE Pass pass(uint32_t chunks) {
    const Pass p{next_};
    if constexpr (kAligned) {
      next_ ^= chunks / kStages % 2;
    } else {
      next_ += chunks;
    }
    return p;
  }

 protected:
  FFPA_ROLE static uint32_t slot(Pass p, uint32_t chunk) {
    return (kAligned ? chunk : p.start + chunk) % kStages;
  }
  FFPA_ROLE static uint32_t parity(Pass p, uint32_t chunk) {
    if constexpr (kAligned) return p.start ^ (chunk / kStages % 2);
    return (p.start + chunk) / kStages % 2;
  }

  M& m;
  const int w;

 private:
  uint32_t next_;
};

template <class M>
class RingWriter : public RingSide<M> {
 public:
  using Side = RingSide<M>;
  using S = typename Side::S;
  FFPA_ROLE RingWriter(M& machine, int w) : Side(machine, w) {}

  // Waits for the chunk's slot; `load(buffer, ready)` then starts the copies that deliver `bytes`.
  template <class Load>
  FFPA_ROLE void fill(Pass p, uint32_t chunk, uint32_t bytes, Load load) {
    const uint32_t s = Side::slot(p, chunk);
    this->m.wait(S::slot_free(this->w, s), Side::parity(p, chunk) ^ 1);
    this->m.expect(S::slot_ready(this->w, s), bytes);
    load(Buffer{S::slot(this->w, s).offset, bytes}, S::slot_ready(this->w, s));
  }
};

template <class M>
class RingReader : public RingSide<M> {
 public:
  using Side = RingSide<M>;
  using S = typename Side::S;
  FFPA_ROLE RingReader(M& machine, int w) : Side(machine, w) {}

  // Waits for the chunk of `bytes`.
  FFPA_ROLE Buffer take(Pass p, uint32_t chunk, uint32_t bytes) {
    const uint32_t s = Side::slot(p, chunk);
    this->m.wait(S::slot_ready(this->w, s), Side::parity(p, chunk));
    return {S::slot(this->w, s).offset, bytes};
  }

  // Waits until only the kHeld youngest wgmma groups run, then hands back the chunks [from, to) of
  // the groups before them.
  template <int kHeld>
  FFPA_ROLE void hand_back(Pass p, uint32_t from, uint32_t to) {
    this->m.template wait_groups<kHeld>();
    FFPA_UNROLL
    for (uint32_t c = from; c < to; ++c) {
      this->m.arrive_one(S::slot_free(this->w, Side::slot(p, c)));
    }
  }
};

}  // namespace ffpa::sm90
