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

// One unit, by cp.async where rows are 16-byte aligned, else by 2-byte loads. Not valid: zeros.
template <class T>
__device__ __forceinline__ void copy_unit(uint32_t to, const T* from, bool valid, bool aligned) {
  if (aligned) return cp_async_16(to, from, valid ? 16 : 0);
  uint32_t x[4] = {};
  if (valid) {
    const auto* bits = reinterpret_cast<const uint16_t*>(from);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = bits[2 * i] | static_cast<uint32_t>(bits[2 * i + 1]) << 16;
  }
  store_shared_16(to, x[0], x[1], x[2], x[3]);
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
__device__ __forceinline__ RowSource<T> row_source(const Operand& o, int32_t batch, int32_t head,
                                                   int32_t begin) {
  const T* data = static_cast<const T*>(o.data) + batch * o.batch_stride + head * o.head_stride +
                  begin * o.row_stride;
  return {data, o.row_stride, o.width, o.aligned};
}

// Columns [column, column + 64) of kRows rows from row `first`; zeros past `valid` rows and past
// the width.
template <class T, int kRows, int kThreads>
__device__ __forceinline__ void copy_panel(uint32_t to, const RowSource<T>& source, int32_t first,
                                           int32_t valid, int32_t column) {
  constexpr int kStep = kThreads / 8;
  static_assert(kRows % kStep == 0 && kStep % 8 == 0);
  const int unit = static_cast<int>(threadIdx.x) % 8, row0 = static_cast<int>(threadIdx.x) / 8;
  const bool inside = column + unit * 8 < source.width;
  const T* from = source.data + (int64_t{first} + row0) * source.row_stride + column + unit * 8;
  to += panel_offset(row0, unit);
  // Rolled loops: their addresses would take registers from the sums.
#pragma unroll 1
  for (int r = row0; r < kRows; r += kStep) {
    const bool in = inside && r < valid;
    copy_unit(to, in ? from : source.data, in, source.aligned);
    to += kStep * kPanelRowBytes;
    from += kStep * source.row_stride;
  }
}

// Own rows of several heads: row r is query r / heads of head r % heads.
template <class T, int kRows, int kThreads>
__device__ __forceinline__ void copy_own_panel(uint32_t to, const RowSource<T>& source,
                                               int64_t head_stride, int32_t heads, int32_t first,
                                               int32_t valid, int32_t column) {
  if (heads == 1) return copy_panel<T, kRows, kThreads>(to, source, first, valid, column);
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
    copy_unit(to + panel_offset(r, unit), from, in, source.aligned);
  }
}

// Whole rows of Z, `row_bytes` apart in shared memory; zeros past `valid` rows.
template <class T, int kCopyLanes, int kThreads>
__device__ __forceinline__ void copy_rows(uint32_t to, const RowSource<T>& source, int32_t first,
                                          int32_t valid, int rows, int row_bytes) {
  const int lane = static_cast<int>(threadIdx.x) % kCopyLanes;
  const int units = source.width / 8;
#pragma unroll 1
  for (int r = static_cast<int>(threadIdx.x) / kCopyLanes; r < rows; r += kThreads / kCopyLanes) {
    const bool in = r < valid;
    const T* from = in ? source.data + (int64_t{first} + r) * source.row_stride : source.data;
    const uint32_t row = to + r * row_bytes;
#pragma unroll 1
    for (int unit = lane; unit < units; unit += kCopyLanes) {
      copy_unit(row + ((unit ^ (r & 7)) << 4), from + unit * 8, in, source.aligned);
    }
  }
}

}  // namespace ffpa::sm80
