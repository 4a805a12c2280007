// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// From a checked problem to what kernels get. Pure functions.
#pragma once

#include "core/problem.h"
#include "sm80/params.h"

namespace ffpa::sm80 {

Operand make_operand(const Rows& r, int64_t width);
Statistics make_statistics(const RowStatistics& s);
Sequences make_sequences(const Problem& p);
Extras make_extras(const Problem& p);
bool has_extras(const Extras& x);

// One operation, before its memory plan and workspace pointers.
struct Operation {
  Op op;
  int shape;       // index into kTileShapes
  int64_t blocks;  // of the grid
  Params params;
};
Operation make_operation(const Problem& p, Op op);

// Fills in the plan for a device: bytes that a block may have, and an SM has.
Status plan_operation(int block_limit, int sm_limit, Operation* operation);

// Statically allocated shared memory of the kernels, at most.
inline constexpr int kStaticSharedBytes = 256;

}  // namespace ffpa::sm80
