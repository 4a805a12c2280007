// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Probabilities P and gradients dS of one tile of scores, from which each pass of the backward
// makes its products.
#pragma once

#include <algorithm>

#include "cpu/tile.h"

namespace ffpa::cpu {

// Rows (heads x queries) and keys of a tile. They set the order of every sum, so they depend on
// the number of heads only.
inline constexpr int kGradientRows = 256, kGradientKeys = 256;
static_assert(kGradientKeys <= kMaxKeysPerTile);

// What the passes need of each row of q: delta = rowsum(dout * out) - dlse, and whether the row of
// q or of dout is loose (TileRows).
struct Deltas {
  static constexpr uint8_t kLooseQ = 1, kLooseDout = 2;

  float* data = nullptr;
  uint8_t* loose_data = nullptr;
  int64_t batch_stride = 0, head_stride = 0;

  static Deltas take(Arena& arena, const Problem& p) {
    Deltas d;
    d.data = arena.take<float>(p.heads_q * p.total_q);
    d.loose_data = arena.take<uint8_t>(p.heads_q * p.total_q);
    d.head_stride = p.packed ? p.total_q : p.seqlen_q;
    d.batch_stride = p.packed ? 0 : p.heads_q * p.seqlen_q;
    return d;
  }
  float& at(int64_t batch, int64_t head, int64_t row) const {
    return data[batch * batch_stride + head * head_stride + row];
  }
  uint8_t& loose(int64_t batch, int64_t head, int64_t row) const {
    return loose_data[batch * batch_stride + head * head_stride + row];
  }
};

// `heads` query heads of one key/value head, `queries` queries. Row h * queries + i of a tile is
// query i of head h.
struct QueryBlock {
  int64_t head = 0;
  int heads = 0;
  int32_t query = 0;
  int queries = 0;

  int rows() const { return heads * queries; }
};

class GradientTile {
 public:
  // Largest block and number of keys.
  GradientTile(const Problem& p, const Deltas& deltas, int max_rows, int max_keys, Arena& arena);

  void set_sequence(int64_t batch, int64_t kv_head);
  // Packs keys [key, key + keys) and their values.
  void set_keys(int32_t key, int keys);
  void set_queries(const QueryBlock& block);
  // Fills `probabilities` (dropped out) and, if `with_gradients`, `gradients`.
  void compute(bool full, GradientOf of, bool with_gradients);

  const Sequence& sequence() const { return s_; }
  const QueryBlock& block() const { return block_; }
  int keys() const { return k_rows_.count(); }
  const FloatTile& probabilities() const { return probabilities_; }
  const FloatTile& gradients() const { return gradients_; }
  const TileBand& band() const { return band_; }
  const TileRows& q_rows() const { return q_rows_; }
  const TileRows& dout_rows() const { return dout_rows_; }
  const TileRows& k_rows() const { return k_rows_; }

  void* row_at(const Rows& rows, int64_t head, int64_t row) const {
    return element_row(rows, p_->dtype, batch_, head, row);
  }

 private:
  const Problem* p_;
  Deltas deltas_;
  const MatmulKernels* matmul_;
  const RowKernels* rows_;
  char *q_panel_, *dout_panel_, *k_panel_, *v_panel_;
  FloatTile probabilities_, gradients_;
  TileRows q_rows_, dout_rows_, k_rows_, v_rows_;
  TileBand band_;
  float *lse_, *delta_, *dlse_;

  int64_t batch_ = 0, kv_head_ = 0;
  Sequence s_;
  int32_t key_ = 0;
  QueryBlock block_;
};

}  // namespace ffpa::cpu
