// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <cuda.h>

#include "sm90/forward/params.h"
#include "sm90/schedule/work.h"

namespace ffpa::sm90 {

// Where the rows of a gradient go.
struct GradientRows {
  void* data;                // null: not wanted
  int64_t batch, head, row;  // strides, elements
  bool aligned;              // all rows start at multiples of 16 bytes
};

// The part of the work that fits the dS workspace: some KV heads, and of every sequence the query
// blocks of 64 rows in [block_begin, block_end).
struct Chunk {
  int32_t first_kv_head, kv_heads;
  int32_t block_begin, block_end;
  bool first, last;  // of those of these heads: sums start at 0; sums are final
};

// What both kernels of the backward read.
struct BackwardParams {
  Sequences sequences;
  int32_t group, window_left, window_right, head_dim;
  Chunk chunk;
  // dS tiles [64 keys x 64 queries], transposed and swizzled as in shared memory. Of each query
  // head of the chunk: key tile after key tile, of each the query blocks that see it.
  uint16_t* ds;
  int64_t ds_tiles_per_head;
  const int32_t* key_tile_offset;  // of each key tile, in tiles (see key_tile_row)
  WaitReport* report;
  uint32_t kernel;
};

struct DkdvParams : BackwardParams {
  // By CTA of the pair: its own rows (K, V), and what it streams for scores (Q, dO) and values (dO,
  // Q).
  CUtensorMap own[2], scores[2], values[2];
  RaggedUnits own_units[2], score_units[2], value_units[2];
  const SequenceTile* list;  // key tiles, those that most queries see first
  const int32_t* list_count;
  float scale, scale_log2;    // P = exp2(scale_log2 S - lse2)
  float cap_scale;            // S = cap tanh(cap_scale K Q); 0: no softcap
  const float *lse2, *delta;  // [heads_q][statistics_stride]: see statistics_row
  int64_t statistics_stride;
  bool store_ds;
  // A greater P is that of a key alone, whose dS is 0 but for rounding; infinity where there is
  // dlse.
  float alone;
  GradientRows gradient[2];  // by CTA: dV, dK
  // Sums between the chunks of the same heads, as registers hold them; null: there is one chunk.
  float* partial;
  int32_t key_tiles;  // rows of the table of dS tiles
};

struct DqParams : BackwardParams {
  CUtensorMap k;
  RaggedUnits k_units;
  const SequenceTile* list;  // tiles of 128 queries
  const int32_t* list_count;
  float scale;
  GradientRows dq;
};

// Rows of the statistics of a sequence, and its key tiles in the table, start where no two
// sequences meet, whatever the offsets: each has a free tile behind it.
FFPA_HD constexpr int32_t padded_tile(int32_t begin, int32_t sequence) {
  return ceil_div(begin, 64) + sequence;
}

}  // namespace ffpa::sm90
