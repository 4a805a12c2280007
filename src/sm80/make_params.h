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
// Does the call need the general kernels?
bool is_general(const Params& p);

// One operation, before its memory plan and workspace pointers.
struct Operation {
  Op op;
  int shape;       // index into kTileShapes
  int64_t blocks;  // of the grid
  Params params;
};
Operation make_operation(const Problem& p, Op op);

// Floats of the workspace for partial results.
int64_t partial_floats(const Problem& p, int splits);

// Fills in the plan for a device: bytes that a block may have, and an SM has.
Status plan_operation(int block_limit, int sm_limit, Operation* operation);

}  // namespace ffpa::sm80
