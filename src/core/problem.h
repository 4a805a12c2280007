// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// A call whose arguments have all been checked, in the one form that plans and backends read.
#pragma once

#include <cstdint>
#include <string>

#include "ffpa/attention.h"
#include "plan/visibility.h"

namespace ffpa {

// [batch, head, row, column] with a unit column stride. Strides in elements; packed tensors have
// batch_stride 0 and rows numbered through the pack. Strides of size-1 dimensions are 0.
struct Rows {
  char* data = nullptr;
  int64_t batch_stride = 0, head_stride = 0, row_stride = 0;
  bool given = false;  // data may be null where the tensor has no elements

  bool defined() const { return given; }
  template <class T>
  T* at(int64_t batch, int64_t head, int64_t row) const {
    return reinterpret_cast<T*>(data) + batch * batch_stride + head * head_stride +
           row * row_stride;
  }
};

// lse and dlse: [batch, head, row] floats.
struct RowStatistics {
  float* data = nullptr;
  int64_t batch_stride = 0, head_stride = 0, row_stride = 0;
  bool given = false;

  bool defined() const { return given; }
  float& at(int64_t batch, int64_t head, int64_t row) const {
    return data[batch * batch_stride + head * head_stride + row * row_stride];
  }
};

// A mask or its gradient over [batch, head, query, key]; stride 0 where it broadcasts.
struct MaskView {
  void* data = nullptr;
  DType dtype = DType::kOther;
  int64_t batch_stride = 0, head_stride = 0, row_stride = 0, column_stride = 0;
  bool given = false;

  bool defined() const { return given; }
  int64_t offset(int64_t batch, int64_t head, int64_t row, int64_t column) const {
    return batch * batch_stride + head * head_stride + row * row_stride + column * column_stride;
  }
};

struct Dropout {
  double p = 0;
  uint64_t seed = 0, offset = 0;
};

// One sequence of the batch: where its rows lie and how many of them take part.
struct Sequence {
  int64_t q_begin = 0, k_begin = 0;  // first row in a packed tensor; dense: 0
  int32_t rows_q = 0, rows_k = 0;    // rows that belong to it
  int32_t len_q = 0, len_k = 0;      // rows in use (seqused), the first ones
};

struct Problem {
  DeviceType device = DeviceType::kCpu;
  int device_index = 0;
  DType dtype = DType::kOther;
  bool packed = false;
  int64_t batch = 0, heads_q = 0, heads_kv = 0;
  int64_t head_dim_qk = 0, head_dim_v = 0;
  int64_t seqlen_q = 0, seqlen_k = 0;  // dense: the lengths; packed: max_seqlen
  int64_t total_q = 0, total_k = 0;    // rows of q and of k over the whole batch

  Rows q, k, v;
  const int32_t *cu_seqlens_q = nullptr, *cu_seqlens_k = nullptr;
  const int32_t *seqused_q = nullptr, *seqused_k = nullptr;

  float softmax_scale = 0, softcap = 0;                         // softcap 0: off
  int32_t window_left = kUnbounded, window_right = kUnbounded;  // causal: right = 0
  MaskView mask;
  const float* alibi_slopes = nullptr;
  int64_t alibi_batch_stride = 0, alibi_head_stride = 0;
  const float* sink = nullptr;
  int64_t sink_stride = 0;
  Dropout dropout;  // p = 0: off

  Backend backend = Backend::kAuto;
  int64_t workspace_limit = -1;
  int num_threads = 0;

  // Forward: results. Backward: what the forward gave.
  Rows out;
  RowStatistics lse;
  // Backward.
  Rows dout;
  RowStatistics dlse;
  Rows dq, dk, dv;
  float* dsink = nullptr;
  int64_t dsink_stride = 0;
  MaskView dmask;

  int64_t group() const { return heads_q / heads_kv; }
  int64_t kv_head(int64_t head) const { return head / group(); }
  Visibility visibility(const Sequence& s) const {
    return {s.len_q, s.len_k, window_left, window_right};
  }
  // Reads cu_seqlens and seqused: CPU tensors only.
  Sequence sequence(int64_t b) const;
};

}  // namespace ffpa
