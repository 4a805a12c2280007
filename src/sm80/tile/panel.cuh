// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Shared memory tiles. A panel is [rows][64] 16-bit elements; its units of 16 bytes are permuted
// inside each 128-byte row so that 8 rows of one column of units lie in all 32 banks.
#pragma once

#include "sm80/config.h"
#include "sm80/params.h"
#include "sm80/ptx.cuh"

namespace ffpa::sm80 {

// Byte offset of unit `unit` (0..7) of row `row`.
__device__ __forceinline__ uint32_t panel_offset(int row, int unit) {
  return static_cast<uint32_t>(row * kPanelRowBytes + ((unit ^ (row & 7)) << 4));
}

// Rows of one head of one sequence.
template <class T>
struct RowSource {
  const T* data;  // row 0
  int64_t row_stride;
  int32_t width;
  bool aligned;
};

template <class T>
__device__ __forceinline__ const T* row_zero(const Operand& o, int32_t batch, int32_t head,
                                             int32_t begin) {
  return static_cast<const T*>(o.data) + batch * o.batch_stride + head * o.head_stride +
         begin * o.row_stride;
}

template <class T>
__device__ __forceinline__ RowSource<T> row_source(const Operand& o, int32_t batch, int32_t head,
                                                   int32_t begin) {
  return {row_zero<T>(o, batch, head, begin), o.row_stride, o.width, o.aligned};
}

// One unit by 2-byte loads, for rows that are not 16-byte aligned. Not valid: zeros.
template <class T>
__device__ __forceinline__ void copy_unit_slowly(uint32_t to, const T* from, bool valid) {
  uint32_t x[4] = {};
  if (valid) {
    const auto* bits = reinterpret_cast<const uint16_t*>(from);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = bits[2 * i] | static_cast<uint32_t>(bits[2 * i + 1]) << 16;
  }
  store_shared_16(to, x[0], x[1], x[2], x[3]);
}

// Columns [column, column + 64) of kRows rows from row `first`; zeros past `valid` rows and past
// the width. Straight-line code between the barriers of a chunk: every thread's part of it delays
// the products.
template <class T, int kRows, int kThreads, bool kGeneral>
__device__ __forceinline__ void copy_panel(uint32_t to, const RowSource<T>& source, int32_t first,
                                           int32_t valid, int32_t column) {
  constexpr int kStep = kThreads / 8;
  static_assert(kRows % kStep == 0 && kStep % 8 == 0);
  const int unit = static_cast<int>(threadIdx.x) % 8, row0 = static_cast<int>(threadIdx.x) / 8;
  const T* from = source.data + (int64_t{first} + row0) * source.row_stride + column + unit * 8;
  to += panel_offset(row0, unit);
  valid = column + unit * 8 < source.width ? valid - row0 : 0;
  if (!kGeneral || source.aligned) {
#pragma unroll
    for (int r = 0; r < kRows; r += kStep) {
      cp_async_16(to + r * kPanelRowBytes, from, r < valid ? 16 : 0);
      from += kStep * source.row_stride;
    }
  } else {
#pragma unroll 1
    for (int r = 0; r < kRows; r += kStep) {
      copy_unit_slowly(to + r * kPanelRowBytes, from, r < valid);
      from += kStep * source.row_stride;
    }
  }
}

// Own rows of several heads: row r is query r / heads of head r % heads.
template <class T, int kRows, int kThreads>
__device__ __forceinline__ void copy_own_panel(uint32_t to, const RowSource<T>& source,
                                               int64_t head_stride, int32_t heads, int32_t first,
                                               int32_t valid, int32_t column) {
  constexpr int kStep = kThreads / 8;
  const int unit = static_cast<int>(threadIdx.x) % 8, row0 = static_cast<int>(threadIdx.x) / 8;
#pragma unroll 1
  for (int r = row0; r < kRows; r += kStep) {
    const bool in = column + unit * 8 < source.width && r < valid;
    const T* from = source.data;
    if (in) {
      from += ((first + r) / heads) * source.row_stride + ((first + r) % heads) * head_stride +
              column + unit * 8;
    }
    if (source.aligned) {
      cp_async_16(to + panel_offset(r, unit), from, in ? 16 : 0);
    } else {
      copy_unit_slowly(to + panel_offset(r, unit), from, in);
    }
  }
}

// Whole rows of Z, `row_bytes` apart in shared memory; zeros past `valid` rows. Up to kMaxWidth
// columns: kCopyLanes threads copy a row.
template <class T, int kMaxWidth, int kCopyLanes, int kThreads, bool kGeneral>
__device__ __forceinline__ void copy_rows(uint32_t to, const RowSource<T>& source, int32_t first,
                                          int32_t valid, int rows, int row_bytes) {
  constexpr int kStep = kThreads / kCopyLanes, kUnits = kMaxWidth / 8;
  const int lane = static_cast<int>(threadIdx.x) % kCopyLanes,
            row0 = static_cast<int>(threadIdx.x) / kCopyLanes;
  const int units = source.width / 8;
  const T* from = source.data + (int64_t{first} + row0) * source.row_stride + lane * 8;
#pragma unroll 1
  for (int r = row0; r < rows; r += kStep) {
    // kCopyLanes is a multiple of 8: the permutation is the same for all units of a thread.
    const uint32_t row = to + r * row_bytes + ((lane ^ (r & 7)) << 4);
    if (!kGeneral || source.aligned) {
#pragma unroll
      for (int unit = 0; unit < kUnits; unit += kCopyLanes) {
        if (unit + lane < units) {
          cp_async_16(row + unit * 16, from + unit * 8, r < valid ? 16 : 0);
        }
      }
    } else {
#pragma unroll 1
      for (int unit = 0; unit + lane < units; unit += kCopyLanes) {
        copy_unit_slowly(row + unit * 16, from + unit * 8, r < valid);
      }
    }
    from += kStep * source.row_stride;
  }
}

}  // namespace ffpa::sm80
