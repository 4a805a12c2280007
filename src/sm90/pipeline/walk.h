// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <type_traits>

#include "sm90/pipeline/storage.h"

namespace ffpa::sm90 {

// THE order. Warpgroup w owns the blocks w, w + 2, ...; both use the values of every block. A step
// covers an own block and the other warpgroup's block before it; `absorb` takes the other's last
// block when no own block follows. A warpgroup's producer and consumer both walk with this.
template <class Step, class Absorb>
FFPA_ROLE void walk(int count, int w, Step step, Absorb absorb) {
  if (count == 0) return;                  // return, not a condition on what follows: ptxas spills
  if (w == 0) step(0, std::false_type{});  // nothing of the other warpgroup comes before block 0
  for (int block = 2 - w; block < count; block += 2) step(block, std::true_type{});
  if (count % 2 == w) absorb(count - 1);
}

}  // namespace ffpa::sm90
