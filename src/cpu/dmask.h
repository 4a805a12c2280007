// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Gradient of an additive mask, in the mask's own shape. A task owns a tile of it and visits, in a
// fixed order, all score tiles that the mask's tile was added to.
#pragma once

#include "cpu/backward_tile.h"

namespace ffpa::cpu {

// 0 where the gradient is not wanted.
int64_t dmask_tasks(const Problem& p);
// `sums` [kBackwardBlock][kBackwardBlock].
template <class E>
void mask_gradient_tile(const Problem& p, const BackwardBuffers<E>& buffers, const float* delta,
                        float* sums, int64_t task);

}  // namespace ffpa::cpu
