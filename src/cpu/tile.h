// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Operands of the tiles' matrix products C = A B. E is the type they are computed in: float, or
// Bits16 (bfloat16 on AMX, float32 accumulation).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "core/problem.h"
#include "cpu/simd.h"

namespace ffpa::cpu {

constexpr int round_up(int x, int step) { return (x + step - 1) / step * step; }

// Rows that A and C must have in memory; depth (K) that both operands must have.
template <class E>
constexpr int padded_rows(int m) {
  return std::is_same_v<E, float> ? m : round_up(m, 16);
}
template <class E>
constexpr int padded_depth(int k) {
  return std::is_same_v<E, float> ? k : round_up(k, 32);
}
constexpr int padded_columns(int n) { return round_up(n, kPackColumns); }
// Row stride of a C of `n` columns. Not a power of two: rows would share cache sets.
constexpr int sums_stride(int64_t n) { return padded_columns(static_cast<int>(n)) + 16; }

// Rows of a tensor: [rows, columns] of `dtype`, ld elements apart.
struct Matrix {
  const char* data;
  DType dtype;
  int64_t ld;
  int rows, columns;
};

// The same as E.
template <class E>
struct Staged {
  const E* data;
  int64_t ld;
};

// As A: rows ld apart; for Bits16 in panels, ld = depth, so that row r (a multiple of 16) is at
// data + r * ld. `buffer` holds padded_rows * padded_depth.
template <class E>
Staged<E> stage_left(const Matrix& m, E* buffer);
// As the source of a pack_...: rows ld apart, in place where layout and dtype allow. `buffer` holds
// rows * columns.
template <class E>
Staged<E> stage_right(const Matrix& m, E* buffer);
template <class E>
bool all_finite(const Staged<E>& m, int rows, int columns);

// B = M^T: [K = columns, N = rows]. `to` holds padded_columns(rows) * padded_depth(columns).
template <class E>
void pack_as_transposed(const Staged<E>& m, int rows, int columns, E* to);
// B = M: [K = rows, N = columns]. `to` holds padded_depth(rows) * padded_columns(columns).
template <class E>
void pack_as_is(const Staged<E>& m, int rows, int columns, E* to);
// Zeroes the rows k of such a B where hidden[k].
template <class E>
void zero_packed_rows(int rows, int columns, const uint8_t* hidden, E* packed);

// C [m, n] (+)= A [m, k] B [k, n]. A as stage_left leaves it; C's row stride ldc is at least
// padded_columns(n).
template <class E>
void multiply(int m, int n, int k, const E* a, int64_t lda, const E* b, float* c, int64_t ldc,
              bool accumulate);

// Row r of an A of this depth, and what lies there: `padded` columns from floats, or zeros.
inline float* left_row(float* a, int r, int depth) { return a + int64_t{r} * depth; }
inline Bits16* left_row(Bits16* a, int r, int depth) {
  return a + int64_t{r / kPanelRows * kPanelRows} * depth + r % kPanelRows * kPanelColumns;
}
void write_left_row(int padded, const float* from, float* row);
void write_left_row(int padded, const float* from, Bits16* row);
void clear_left_row(int padded, float* row);
void clear_left_row(int padded, Bits16* row);

// Are the call's products computed in bfloat16 on AMX?
bool uses_amx(const Problem& p);
// Hands the matrix unit back at the end of a task.
template <class E>
void release_matrix_unit();
// Instruction set, product type and threads, for people.
std::string describe_engine(const Problem& p);

// float row -> a tensor's dtype, and back.
void store_row(int n, const float* from, DType dtype, void* to);
void load_row(int n, DType dtype, const void* from, float* to);

inline Matrix rows_of(const Rows& r, DType dtype, int64_t batch, int64_t head, int64_t row,
                      int rows, int64_t columns) {
  const int64_t offset = batch * r.batch_stride + head * r.head_stride + row * r.row_stride;
  return {r.data + offset * dtype_bytes(dtype), dtype, r.row_stride, rows,
          static_cast<int>(columns)};
}

}  // namespace ffpa::cpu
