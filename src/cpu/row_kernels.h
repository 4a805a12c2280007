// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Everything between two products: scores, softmax, its gradient, conversions.
#pragma once

#include "core/problem.h"
#include "cpu/isa.h"

namespace ffpa::cpu {

// Widest tile of scores.
inline constexpr int kMaxKeysPerTile = 384;

// How products <q, k> of one batch and head become scores and dropped-out probabilities.
struct ScoreRules {
  float scale = 1, softcap = 0, alibi_slope = 0;
  bool alibi = false;
  MaskView mask;  // data at this batch and head
  Visibility visible;

  bool dropout = false;
  double dropout_p = 0;
  float keep_scale = 1;
  uint64_t seed = 0;
  uint64_t first_element = 0;  // of query 0 and key 0, random offset included
  int64_t elements_per_query = 0;
};

ScoreRules score_rules(const Problem& p, int64_t batch, int64_t head, const Sequence& s);

// Products, later probabilities, of `rows` queries and `columns` keys. Rows are 64-byte aligned
// and padded to whole vectors.
struct ScoreTile {
  float* data;
  int64_t stride;
  int32_t query, key;  // the first ones
  int rows, columns;
  bool full;  // every key is visible to every query, as far as the window goes
};

// What `gradient` leaves in dp: dS of the scaled products, or dS of the mask.
enum class GradientOf : uint8_t { kProducts, kMask };

struct RowKernels {
  // Online softmax, one tile further. Tile: products -> dropped-out exp(s - max). row_max, row_sum:
  // running values. correction: what earlier sums are to be multiplied by.
  void (*softmax)(const ScoreRules&, const ScoreTile&, float* row_max, float* row_sum,
                  float* correction);
  // Tile: products -> dropped-out probabilities. dp (the tile's shape and stride): gradient of
  // those -> gradient of what `of` names. delta: sum over keys of P dP, less dlse. A key with all
  // the weight gets dlse, exactly.
  void (*gradient)(const ScoreRules&, const ScoreTile&, float* dp, const float* lse,
                   const float* delta, const float* dlse, GradientOf of);
  void (*store)(const float* from, int n, float factor, DType dtype, void* to);
  void (*scale)(float* row, int n, float factor);
  void (*add)(const float* from, int n, float* to);
  float (*dot)(const void* a, const void* b, DType dtype, int n);
  void (*add_scaled)(float factor, const void* row, DType dtype, int n, float* to);
  // Whether every element is finite, also after rounding to bfloat16.
  bool (*all_finite)(const void* row, DType dtype, int n);
};

const RowKernels& row_kernels();

}  // namespace ffpa::cpu
