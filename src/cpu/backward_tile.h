// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// One tile of queries against one tile of keys in the backward: P and dS from recomputed scores,
// then their products. Every path of the backward uses it, so that a gradient has the same bits
// whichever path computed it.
#pragma once

#include "cpu/scores.h"
#include "cpu/tile.h"
#include "cpu/workspace.h"

namespace ffpa::cpu {

inline constexpr int kBackwardBlock = 128;  // queries, and keys, of a tile

// What a path needs of a tile.
struct BackwardNeeds {
  bool dq, dkdv;
};

template <class E>
struct BackwardBuffers {
  E *query_left, *dout_left;             // operands A
  E *query, *dout, *key, *value;         // staged rows
  E *query_rows, *dout_rows, *key_rows;  // packed as they are
  E *keys, *values;                      // packed transposed
  E *probs, *ds;                         // P, dS: rows kBackwardBlock apart
  E *ds_left, *turned;                   // operands A: dS; P^T or dS^T
  float *scores, *dprobs, *capped, *factor, *gradient;
  uint8_t* hidden;

  BackwardBuffers(const Problem& p, Carver& c);
};

template <class E>
class BackwardTile {
 public:
  BackwardTile(const Problem& p, const BackwardBuffers<E>& buffers, const float* delta,
               BackwardNeeds needs)
      : p_(p),
        b_(buffers),
        delta_(delta),
        needs_(needs),
        d_(static_cast<int>(p.head_dim_qk)),
        dv_(static_cast<int>(p.head_dim_v)) {}

  void load_keys(const Sequence& s, int64_t batch, int64_t kv_head, int32_t j0);
  // `scores`: of this head and sequence.
  void load_queries(const Sequence& s, const Scores& scores, int64_t batch, int64_t head,
                    int32_t i0);

  // P and dS of the loaded tiles. False where no query sees any key. With `score_gradient`
  // [kBackwardBlock][kBackwardBlock], the gradient of the final scores is added to it.
  bool compute(bool full, float* score_gradient);

  void add_dq(float* dq, int64_t ld);  // [queries, D] += dS K
  void add_dk(float* dk, int64_t ld);  // [keys, D] += dS^T Q
  void add_dv(float* dv, int64_t ld);  // [keys, Dv] += P^T dO

 private:
  int64_t token(int r) const;
  bool rows_are_finite() const;
  void row_gradients(int r, bool full, float* score_gradient);
  void general_row(int r, float lse, float delta, bool one_key, float* score_gradient);
  void turn(const E* from);
  void clear_rows(int begin, int end);
  void select_visible();
  void find_hidden(bool by_key);

  const Problem& p_;
  const BackwardBuffers<E>& b_;
  const float* delta_;
  const BackwardNeeds needs_;
  const int d_, dv_;

  const Scores* scores_ = nullptr;
  int64_t batch_ = 0, head_ = 0, q_begin_ = 0;
  int32_t i0_ = 0, j0_ = 0;
  int m_ = 0, n_ = 0;
  int begin_ = 0, end_ = 0;  // rows of the tile that see any of the keys
  Staged<E> query_left_{}, dout_left_{}, query_{}, dout_{}, key_{};
  bool keys_finite_ = true, queries_finite_ = true;
};

}  // namespace ffpa::cpu
