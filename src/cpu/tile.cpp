// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "cpu/tile.h"

#include <algorithm>
#include <cstring>

#include "cpu/amx.h"
#include "cpu/threads.h"

namespace ffpa::cpu {
namespace {

void convert_row(int n, DType dtype, const void* from, float* to) { load_row(n, dtype, from, to); }
void convert_row(int n, DType, const void* from, Bits16* to) {
  std::memcpy(to, from, n * sizeof(Bits16));
}

bool row_is_finite(int n, const float* x) { return !has_non_finite(n, x); }
bool row_is_finite(int n, const Bits16* x) { return !has_non_finite_bf16(n, x); }

template <class E>
bool in_place(const Matrix& m, bool as_a) {
  if constexpr (std::is_same_v<E, float>) {
    return m.dtype == DType::kFloat32;
  } else {
    // Packing reads pairs of columns as dwords; A is read in whole tiles.
    if (m.ld % 2 != 0 || reinterpret_cast<uintptr_t>(m.data) % 4 != 0) return false;
    return !as_a || (padded_rows<E>(m.rows) == m.rows && padded_depth<E>(m.columns) == m.columns);
  }
}

}  // namespace

void load_row(int n, DType dtype, const void* from, float* to) {
  if (dtype == DType::kFloat32) {
    std::memcpy(to, from, n * sizeof(float));
  } else if (dtype == DType::kBFloat16) {
    bf16_to_f32(n, static_cast<const Bits16*>(from), to);
  } else {
    f16_to_f32(n, static_cast<const Bits16*>(from), to);
  }
}

void store_row(int n, const float* from, DType dtype, void* to) {
  if (dtype == DType::kFloat32) {
    std::memcpy(to, from, n * sizeof(float));
  } else if (dtype == DType::kBFloat16) {
    f32_to_bf16(n, from, static_cast<Bits16*>(to));
  } else {
    f32_to_f16(n, from, static_cast<Bits16*>(to));
  }
}

void narrow(int n, const float* from, float* to) { std::memcpy(to, from, n * sizeof(float)); }

bool uses_amx(const Problem& p) { return p.dtype == DType::kBFloat16 && amx_available(); }

template <>
void release_matrix_unit<float>() {}
template <>
void release_matrix_unit<Bits16>() {
  amx_release();
}

std::string describe_engine(const Problem& p) {
  return std::string(uses_amx(p) ? "bfloat16 products on AMX" : "float32 products") +
         ", element-wise on " + simd_target() + ", " + std::to_string(thread_count(p)) + " threads";
}

template <class E>
Staged<E> stage(const Matrix& m, bool as_a, bool check_finite, E* buffer) {
  Staged<E> staged{reinterpret_cast<const E*>(m.data), m.ld, true};
  if (!in_place<E>(m, as_a)) {
    const int depth = padded_depth<E>(m.columns);
    for (int r = 0; r < m.rows; ++r) {
      E* row = buffer + int64_t{r} * depth;
      convert_row(m.columns, m.dtype, m.data + r * m.ld * dtype_bytes(m.dtype), row);
      std::fill(row + m.columns, row + depth, E{});
    }
    std::fill(buffer + int64_t{m.rows} * depth, buffer + int64_t{padded_rows<E>(m.rows)} * depth,
              E{});
    staged.data = buffer;
    staged.ld = depth;
  }
  for (int r = 0; check_finite && r < m.rows && staged.finite; ++r) {
    staged.finite = row_is_finite(m.columns, staged.data + r * staged.ld);
  }
  return staged;
}

template <class E>
void pack_as_transposed(const Staged<E>& m, int rows, int columns, E* to) {
  constexpr int kPerDword = 4 / sizeof(E);
  pack_transposed(rows, columns / kPerDword, padded_depth<E>(columns) / kPerDword,
                  reinterpret_cast<const uint32_t*>(m.data), m.ld / kPerDword,
                  reinterpret_cast<uint32_t*>(to));
}

template <class E>
void pack_as_is(const Staged<E>& m, int rows, int columns, E* to) {
  if constexpr (std::is_same_v<E, float>) {
    pack_rows(rows, columns, m.data, m.ld, to);
  } else {
    pack_rows(rows, padded_depth<E>(rows), columns, m.data, m.ld, to);
  }
}

template <class E>
void zero_packed_rows(int rows, int columns, const uint8_t* hidden, E* packed) {
  const int depth = padded_depth<E>(rows);
  for (int c = 0; c < columns; c += kPackColumns, packed += int64_t{depth} * kPackColumns) {
    for (int k = 0; k < rows; ++k) {
      if (!hidden[k]) continue;
      for (int i = 0; i < kPackColumns; ++i) {
        if constexpr (std::is_same_v<E, float>) {
          packed[k * kPackColumns + i] = 0;
        } else {
          packed[(k / 2 * kPackColumns + i) * 2 + k % 2] = 0;
        }
      }
    }
  }
}

template <class E>
void multiply(int m, int n, int k, const E* a, int64_t lda, const E* b, float* c, int64_t ldc,
              bool accumulate) {
  const int groups = padded_columns(n) / kPackColumns;
  if constexpr (std::is_same_v<E, float>) {
    matmul_f32(m, groups, k, a, lda, b, c, ldc, accumulate);
  } else {
    matmul_bf16(padded_rows<E>(m), groups, padded_depth<E>(k), a, lda, b, c, ldc, accumulate);
  }
}

template Staged<float> stage(const Matrix&, bool, bool, float*);
template Staged<Bits16> stage(const Matrix&, bool, bool, Bits16*);
template void pack_as_transposed(const Staged<float>&, int, int, float*);
template void pack_as_transposed(const Staged<Bits16>&, int, int, Bits16*);
template void pack_as_is(const Staged<float>&, int, int, float*);
template void pack_as_is(const Staged<Bits16>&, int, int, Bits16*);
template void zero_packed_rows(int, int, const uint8_t*, float*);
template void zero_packed_rows(int, int, const uint8_t*, Bits16*);
template void multiply(int, int, int, const float*, int64_t, const float*, float*, int64_t, bool);
template void multiply(int, int, int, const Bits16*, int64_t, const Bits16*, float*, int64_t, bool);

}  // namespace ffpa::cpu
