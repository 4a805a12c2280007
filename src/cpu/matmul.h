// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Products of packed tiles, C[m][n] (+)= left[m][k] right[k][n], float32 accumulation. Packing
// brings both operands into the order in which the inner loop reads them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/isa.h"
#include "ffpa/tensor.h"
#include "plan/visibility.h"

namespace ffpa::cpu {

enum class Side : uint8_t { kLeft, kRight };

// Which dimension of the product the rows in memory run along: the one that the result keeps (m of
// the left operand, n of the right one) or the one that is summed over (k).
enum class RowsAlong : uint8_t { kKept, kSummed };

// `count` rows of `columns` elements, contiguous each. A null row is a row of zeros.
struct RowSet {
  const void* const* rows = nullptr;
  int count = 0;
  int columns = 0;
  DType dtype = DType::kOther;
};

// C must have room for m rounded up to kRowRound and n to kColumnRound: the rest is written too.
inline constexpr int kRowRound = 16, kColumnRound = 32;

// Parts of a product that may be left out, for each kBandRows rows of C: columns that nobody reads,
// terms that are zero. Null: none.
inline constexpr int kBandRows = 32;
struct Band {
  const Range* columns = nullptr;
  const Range* terms = nullptr;
};

struct MatmulKernels {
  const char* name;
  // True if an operand that is not finite, or rounds to infinity in bfloat16, gives NaN where the
  // exact product is infinite.
  bool finite_only;
  size_t (*panel_bytes)(int kept, int summed);
  void (*pack)(Side side, RowsAlong along, const RowSet& source, void* panel);
  void (*multiply)(int m, int n, int k, const void* left, const void* right, float* c,
                   int64_t c_stride, bool accumulate, const Band& band);
};

// `precision`: dtype of the tensors. Products of bfloat16 tensors round their operands to bfloat16;
// those of float16 and float32 ones keep 16 and 24 bits.
const MatmulKernels& matmul_kernels(DType precision);

// One per file.
const MatmulKernels& simd_matmul_kernels(Isa isa);
const MatmulKernels& amx_matmul_kernels(DType precision);

}  // namespace ffpa::cpu
