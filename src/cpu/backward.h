// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The passes of the backward, in the order in which they run. Each measures and takes its scratch
// memory from an arena.
#pragma once

#include "cpu/gradient_tile.h"

namespace ffpa::cpu {

// delta of every row, dq = 0 where no key is seen, dsink.
void prepare_backward(const Problem& p, const Deltas& deltas, int workers);

// dq, dk, dv.
size_t qkv_gradient_bytes(const Problem& p, int workers);
void compute_qkv_gradients(const Problem& p, const Deltas& deltas, int workers, void* scratch);
std::string describe_qkv_gradients(const Problem& p, int workers);

// dmask.
size_t mask_gradient_bytes(const Problem& p, int workers);
void compute_mask_gradient(const Problem& p, const Deltas& deltas, int workers, void* scratch);

}  // namespace ffpa::cpu
