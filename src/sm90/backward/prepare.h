// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// What runs before the kernels of the backward.
#pragma once

#include <cuda_runtime_api.h>

#include "sm90/backward/params.h"

namespace ffpa::sm90 {

struct StatisticsParams {
  Sequences sequences;
  int32_t heads_q;
  const float* lse;
  int64_t lse_batch, lse_head, lse_row;
  const float* delta;  // [heads_q][rows of q]
  int64_t delta_head;
  float *lse2, *delta_padded;  // [heads_q][stride]
  int64_t stride;              // 64 rows for each of the padded tiles
};

// lse2 = lse log2(e) and delta, for each sequence from a multiple of 64 rows on. Rows that are not
// in use or see no key: lse2 = infinity and delta = 0, which makes P and dS zero.
cudaError_t prepare_statistics(const StatisticsParams& params, cudaStream_t stream);

struct KeyTileParams {
  Sequences sequences;
  int32_t window_left, window_right;
  Chunk chunk;
  int32_t key_tiles;    // rows of the table
  int32_t class_shift;  // query blocks of a tile >> class_shift is below kTileClasses
  int32_t* offset;      // [key_tiles]
  SequenceTile* list;   // [key_tiles], those that most queries see first
  int32_t* count;
  // Offsets that name longer sequences than max_seqlen would need more dS tiles than there is
  // memory for: then both lists become empty, and nothing is written.
  int64_t most_tiles;
  int32_t* dq_count;
};

// The table of dS tiles and the list of key tiles of a chunk.
cudaError_t prepare_key_tiles(const KeyTileParams& params, cudaStream_t stream);

}  // namespace ffpa::sm90
