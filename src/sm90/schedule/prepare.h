// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The work list of a pack: every query tile of every sequence, longest first.
#pragma once

#include <cuda_runtime_api.h>

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

cudaError_t prepare_work_list(const PrepareParams& params, cudaStream_t stream);

}  // namespace ffpa::sm90
