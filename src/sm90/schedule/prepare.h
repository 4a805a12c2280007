// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The work list of a pack: every query tile of every sequence, longest first.
#pragma once

#include <cuda_runtime_api.h>

#include "core/problem.h"
#include "sm90/schedule/work.h"

namespace ffpa::sm90 {

struct PrepareParams {
  Sequences sequences;
  int32_t window_left, window_right;
  int32_t block_m, block_n;
  SequenceTile* list;
  int32_t* count;
  int32_t capacity;
  int32_t class_shift;  // key blocks of a tile >> class_shift is below kTileClasses
};

inline constexpr int kTileClasses = 1024;
constexpr int32_t class_shift(int64_t most_blocks) {
  int32_t shift = 0;
  while (most_blocks >> shift >= kTileClasses) ++shift;
  return shift;
}

inline Sequences sequences_of(const Problem& p) {
  return {.cu_q = p.cu_seqlens_q,
          .cu_k = p.cu_seqlens_k,
          .used_q = p.seqused_q,
          .used_k = p.seqused_k,
          .batch = int32_t(p.batch),
          .rows_q = int32_t(p.packed ? p.total_q : p.seqlen_q),
          .rows_k = int32_t(p.packed ? p.total_k : p.seqlen_k)};
}

cudaError_t prepare_work_list(const PrepareParams& params, cudaStream_t stream);

}  // namespace ffpa::sm90
