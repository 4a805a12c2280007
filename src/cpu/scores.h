// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// From products to scores, one row of a tile at a time: scale, softcap, ALiBi, mask, window; and
// dropout.
#pragma once

#include "core/problem.h"

namespace ffpa::cpu {

// The scores of one query head in one sequence.
class Scores {
 public:
  Scores(const Problem& p, const Sequence& s, int64_t batch, int64_t head);

  const Visibility& visibility() const { return visibility_; }
  bool has_dropout() const { return p_.dropout.p != 0; }
  bool has_softcap() const { return p_.softcap != 0; }

  // Nothing but scale and window: finish_row leaves products, and the scale to exponent_scale.
  bool plain() const { return plain_; }
  // From what finish_row leaves in s to scores, and to their exponents of 2.
  float score_scale() const { return plain_ ? p_.softmax_scale : 1; }
  float exponent_scale() const;

  // s [padded]: <q_i, k_j> of the keys j in [j0, j0 + n) -> scores (plain: products); -inf where
  // hidden and from n on. Returns the largest. `full`: every key is visible to the window. With a
  // softcap, `capped` (or null) gets the scores right after it.
  float finish_row(int32_t i, int32_t j0, int n, int padded, bool full, float* s,
                   float* capped) const;

  // Factor from the gradient of a score to that of the product, but for the softcap.
  float product_scale() const { return p_.softmax_scale; }
  // ds *= derivative of the softcap.
  void through_softcap(int padded, const float* capped, float* ds) const;

  // factor [padded]: 1 / (1 - p) where P is kept, 0 where it is dropped.
  void dropout_row(int32_t i, int32_t j0, int padded, float* factor) const;

 private:
  void add_alibi(int32_t i, int32_t j0, int n, float* s) const;
  void add_mask(int32_t i, int32_t j0, int n, float* s) const;

  const Problem& p_;
  Visibility visibility_;
  int64_t batch_, head_;
  float slope_ = 0;
  bool plain_;
};

}  // namespace ffpa::cpu
