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

template <class E>
bool in_place(const Matrix& m) {
  if constexpr (std::is_same_v<E, float>) {
    return m.dtype == DType::kFloat32;
  } else {
    // Packing reads pairs of columns as dwords.
    return m.ld % 2 == 0 && reinterpret_cast<uintptr_t>(m.data) % 4 == 0;
  }
}

template <class E>
Staged<E> copy_rows(const Matrix& m, E* buffer) {
  const int64_t bytes = dtype_bytes(m.dtype);
  for (int r = 0; r < m.rows; ++r) {
    convert_row(m.columns, m.dtype, m.data + r * m.ld * bytes, buffer + int64_t{r} * m.columns);
  }
  return {buffer, m.columns};
}

void copy_to_panel(const Matrix& m, int depth, Bits16* buffer) {
  for (int r = 0; r < m.rows; ++r) {
    const Bits16* from = reinterpret_cast<const Bits16*>(m.data) + r * m.ld;
    Bits16* row = left_row(buffer, r, depth);
    int c = 0;
    for (; c + kPanelColumns <= m.columns; c += kPanelColumns, row += kPanelStep) {
      std::memcpy(row, from + c, kPanelColumns * sizeof(Bits16));  // of a known size: one move
    }
    if (c < m.columns) {
      std::fill(row, row + kPanelColumns, Bits16{});
      std::copy(from + c, from + m.columns, row);
    }
  }
  for (int r = m.rows; r < round_up(m.rows, kPanelRows); ++r) {
    clear_left_row(depth, left_row(buffer, r, depth));
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

void write_left_row(int padded, const float* from, float* row) {
  std::memcpy(row, from, padded * sizeof(float));
}
void write_left_row(int padded, const float* from, Bits16* row) {
  for (int c = 0; c < padded; c += kPanelColumns, row += kPanelStep) {
    f32_to_bf16(kPanelColumns, from + c, row);
  }
}
void clear_left_row(int padded, float* row) { std::fill(row, row + padded, 0.f); }
void clear_left_row(int padded, Bits16* row) {
  for (int c = 0; c < padded; c += kPanelColumns, row += kPanelStep) {
    std::fill(row, row + kPanelColumns, Bits16{});
  }
}

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
Staged<E> stage_left(const Matrix& m, E* buffer) {
  if constexpr (std::is_same_v<E, float>) {
    return stage_right<E>(m, buffer);
  } else {
    const int depth = padded_depth<E>(m.columns);
    copy_to_panel(m, depth, buffer);
    return {buffer, depth};
  }
}

template <class E>
Staged<E> stage_right(const Matrix& m, E* buffer) {
  if (in_place<E>(m)) return {reinterpret_cast<const E*>(m.data), m.ld};
  return copy_rows<E>(m, buffer);
}

template <class E>
bool all_finite(const Staged<E>& m, int rows, int columns) {
  for (int r = 0; r < rows; ++r) {
    if constexpr (std::is_same_v<E, float>) {
      if (has_non_finite(columns, m.data + r * m.ld)) return false;
    } else {
      if (has_non_finite_bf16(columns, m.data + r * m.ld)) return false;
    }
  }
  return true;
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
    static_cast<void>(lda);  // the depth
    matmul_bf16(padded_rows<E>(m), groups, padded_depth<E>(k), a, b, c, ldc, accumulate);
  }
}

template Staged<float> stage_left(const Matrix&, float*);
template Staged<Bits16> stage_left(const Matrix&, Bits16*);
template Staged<float> stage_right(const Matrix&, float*);
template Staged<Bits16> stage_right(const Matrix&, Bits16*);
template bool all_finite(const Staged<float>&, int, int);
template bool all_finite(const Staged<Bits16>&, int, int);
template void pack_as_transposed(const Staged<float>&, int, int, float*);
template void pack_as_transposed(const Staged<Bits16>&, int, int, Bits16*);
template void pack_as_is(const Staged<float>&, int, int, float*);
template void pack_as_is(const Staged<Bits16>&, int, int, Bits16*);
template void zero_packed_rows(int, int, const uint8_t*, float*);
template void zero_packed_rows(int, int, const uint8_t*, Bits16*);
template void multiply(int, int, int, const float*, int64_t, const float*, float*, int64_t, bool);
template void multiply(int, int, int, const Bits16*, int64_t, const Bits16*, float*, int64_t, bool);

}  // namespace ffpa::cpu
