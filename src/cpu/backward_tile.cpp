// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "cpu/backward_tile.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ffpa::cpu {
namespace {

constexpr int kBlock = kBackwardBlock;
constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr float kLog2E = 1.44269504088896341f;
static_assert(kBlock % 32 == 0, "P and dS are operands with either side as the depth");

}  // namespace

template <class E>
BackwardBuffers<E>::BackwardBuffers(const Problem& p, Carver& c) {
  const int d = static_cast<int>(p.head_dim_qk), dv = static_cast<int>(p.head_dim_v);
  const auto by_d = [&](int columns) { return c.take<E>(int64_t{kBlock} * columns); };
  query_left = by_d(padded_depth<E>(d));
  dout_left = by_d(padded_depth<E>(dv));
  query = by_d(d);
  key = by_d(d);
  dout = by_d(dv);
  value = by_d(dv);
  query_rows = by_d(padded_columns(d));
  key_rows = by_d(padded_columns(d));
  dout_rows = by_d(padded_columns(dv));
  keys = by_d(padded_depth<E>(d));
  values = by_d(padded_depth<E>(dv));
  probs = by_d(kBlock);
  ds = by_d(kBlock);
  ds_left = by_d(kBlock);
  turned = by_d(kBlock);
  scores = c.take<float>(kBlock * kBlock);
  dprobs = c.take<float>(kBlock * kBlock);
  capped = c.take<float>(kBlock);
  factor = c.take<float>(kBlock);
  gradient = c.take<float>(kBlock);
  hidden = c.take<uint8_t>(kBlock);
}

template <class E>
void BackwardTile<E>::load_keys(const Sequence& s, int64_t batch, int64_t kv_head, int32_t j0) {
  j0_ = j0;
  n_ = std::min(kBlock, s.len_k - j0);
  const int64_t row = s.k_begin + j0;
  key_ = stage_right<E>(rows_of(p_.k, p_.dtype, batch, kv_head, row, n_, d_), b_.key);
  pack_as_transposed(key_, n_, d_, b_.keys);
  if (needs_.dq) {
    pack_as_is(key_, n_, d_, b_.key_rows);
    keys_finite_ = all_finite(key_, n_, d_);
  }
  const Staged<E> value =
      stage_right<E>(rows_of(p_.v, p_.dtype, batch, kv_head, row, n_, dv_), b_.value);
  pack_as_transposed(value, n_, dv_, b_.values);
}

template <class E>
void BackwardTile<E>::load_queries(const Sequence& s, const Scores& scores, int64_t batch,
                                   int64_t head, int32_t i0) {
  scores_ = &scores;
  batch_ = batch;
  head_ = head;
  q_begin_ = s.q_begin;
  i0_ = i0;
  m_ = std::min(kBlock, s.len_q - i0);
  const int64_t row = s.q_begin + i0;
  const Matrix query = rows_of(p_.q, p_.dtype, batch, head, row, m_, d_);
  const Matrix dout = rows_of(p_.dout, p_.dtype, batch, head, row, m_, dv_);
  query_left_ = stage_left<E>(query, b_.query_left);
  dout_left_ = stage_left<E>(dout, b_.dout_left);
  if (!needs_.dkdv) return;
  query_ = stage_right<E>(query, b_.query);
  dout_ = stage_right<E>(dout, b_.dout);
  pack_as_is(query_, m_, d_, b_.query_rows);
  pack_as_is(dout_, m_, dv_, b_.dout_rows);
  queries_finite_ = rows_are_finite();
}

template <class E>
int64_t BackwardTile<E>::token(int r) const {
  return p_.packed ? q_begin_ + i0_ + r : batch_ * p_.seqlen_q + i0_ + r;
}

// A NaN or infinity in a row of Q shows in its lse, one in dO in its delta; a row without keys has
// neither read.
template <class E>
bool BackwardTile<E>::rows_are_finite() const {
  for (int r = 0; r < m_; ++r) {
    if (!std::isfinite(p_.lse.at(batch_, head_, q_begin_ + i0_ + r))) return false;
    if (!std::isfinite(delta_[head_ * p_.total_q + token(r)])) return false;
  }
  return true;
}

template <class E>
bool BackwardTile<E>::compute(bool full, float* score_gradient) {
  const Visibility& v = scores_->visibility();
  begin_ = std::clamp(visible_queries(v, j0_).begin - i0_, 0, m_) / 16 * 16;
  end_ = std::clamp(visible_queries(v, j0_ + n_ - 1).end - i0_, 0, m_);
  if (begin_ >= end_) return false;
  const int64_t first = int64_t{begin_} * kBlock;
  multiply(end_ - begin_, n_, d_, query_left_.data + begin_ * query_left_.ld, query_left_.ld,
           b_.keys, b_.scores + first, kBlock, false);
  multiply(end_ - begin_, n_, dv_, dout_left_.data + begin_ * dout_left_.ld, dout_left_.ld,
           b_.values, b_.dprobs + first, kBlock, false);
  clear_rows(0, begin_);
  for (int r = begin_; r < end_; ++r) row_gradients(r, full, score_gradient);
  clear_rows(end_, round_up(m_, 32));
  select_visible();
  return true;
}

template <class E>
void BackwardTile<E>::clear_rows(int begin, int end) {
  std::fill(b_.probs + begin * kBlock, b_.probs + end * kBlock, E{});
  std::fill(b_.ds + begin * kBlock, b_.ds + end * kBlock, E{});
  if constexpr (std::is_same_v<E, Bits16>) {
    const int depth = round_up(n_, 32);
    for (int r = begin; r < end; ++r) clear_left_row(depth, left_row(b_.ds_left, r, depth));
  }
}

template <class E>
void BackwardTile<E>::row_gradients(int r, bool full, float* score_gradient) {
  const int padded = round_up(n_, 32), at = r * kBlock;
  const float lse = p_.lse.at(batch_, head_, q_begin_ + i0_ + r);
  if (lse == kNone) return clear_rows(r, r + 1);
  scores_->finish_row(i0_ + r, j0_, n_, padded, full, b_.scores + at, b_.capped);
  const float delta = delta_[head_ * p_.total_q + token(r)];
  // Softmax of one key is constant: that is exact, the difference of two long sums is not.
  const bool one_key = !p_.sink && visible_keys(scores_->visibility(), i0_ + r).size() == 1;
  if (!scores_->plain() || scores_->has_dropout() || one_key || score_gradient) {
    return general_row(r, lse, delta, one_key, score_gradient);
  }
  const float scale2 = scores_->exponent_scale(), lse2 = lse * kLog2E;
  if constexpr (std::is_same_v<E, float>) {
    gradient_row(padded, scale2, lse2, delta, scores_->product_scale(), b_.scores + at,
                 b_.dprobs + at, b_.probs + at, b_.ds + at);
  } else {
    gradient_row(padded, scale2, lse2, delta, scores_->product_scale(), b_.scores + at,
                 b_.dprobs + at, b_.probs + at, b_.ds + at,
                 needs_.dq ? left_row(b_.ds_left, r, padded) : nullptr);
  }
}

template <class E>
void BackwardTile<E>::general_row(int r, float lse, float delta, bool one_key,
                                  float* score_gradient) {
  const int padded = round_up(n_, 32), at = r * kBlock;
  float *p = b_.scores + at, *dp = b_.dprobs + at, *ds = b_.gradient;
  exp2_row(padded, scores_->exponent_scale(), lse / scores_->score_scale(), p, p);
  if (scores_->has_dropout()) scores_->dropout_row(i0_ + r, j0_, padded, b_.factor);
  const float dlse = p_.dlse.defined() ? p_.dlse.at(batch_, head_, q_begin_ + i0_ + r) : 0;
  for (int c = 0; c < padded; ++c) {
    float gradient = dp[c];
    if (scores_->has_dropout()) {
      gradient = b_.factor[c] == 0 ? 0 : gradient * b_.factor[c];
    }
    // Where one key has all the weight, dP and rowsum(dout * out) are equal but for rounding.
    const bool alone = one_key || p[c] == 1;
    ds[c] = p[c] == 0 ? 0 : alone ? dlse : p[c] * (gradient - delta);
    if (scores_->has_dropout()) p[c] *= b_.factor[c];
  }
  for (int c = 0; score_gradient && c < n_; ++c) score_gradient[at + c] += ds[c];
  if (scores_->has_softcap()) scores_->through_softcap(padded, b_.capped, ds);
  multiply_row(padded, scores_->product_scale(), ds);
  if constexpr (std::is_same_v<E, float>) {
    std::copy(p, p + padded, b_.probs + at);
    std::copy(ds, ds + padded, b_.ds + at);
  } else {
    f32_to_bf16(padded, p, b_.probs + at);
    f32_to_bf16(padded, ds, b_.ds + at);
    write_left_row(padded, ds, left_row(b_.ds_left, r, padded));
  }
}

// Rows and keys without any P in this tile may be NaN or infinite: 0 * NaN must not reach a sum.
template <class E>
void BackwardTile<E>::select_visible() {
  if (needs_.dq && !keys_finite_) {
    find_hidden(true);
    pack_as_is(key_, n_, d_, b_.key_rows);
    zero_packed_rows(n_, d_, b_.hidden, b_.key_rows);
  }
  if (!needs_.dkdv || queries_finite_) return;
  find_hidden(false);
  pack_as_is(query_, m_, d_, b_.query_rows);
  zero_packed_rows(m_, d_, b_.hidden, b_.query_rows);
  pack_as_is(dout_, m_, dv_, b_.dout_rows);
  zero_packed_rows(m_, dv_, b_.hidden, b_.dout_rows);
}

template <class E>
void BackwardTile<E>::find_hidden(bool by_key) {
  std::fill_n(b_.hidden, kBlock, uint8_t{1});
  for (int r = 0; r < m_; ++r) {
    for (int c = 0; c < n_; ++c) {
      if (b_.probs[r * kBlock + c] != 0) b_.hidden[by_key ? c : r] = 0;
    }
  }
}

template <class E>
void BackwardTile<E>::add_dq(float* dq, int64_t ld) {
  const bool rows = std::is_same_v<E, float>;
  const int lda = rows ? kBlock : round_up(n_, 32);
  const E* ds = rows ? b_.ds : b_.ds_left;
  multiply(end_ - begin_, d_, n_, ds + begin_ * lda, lda, b_.key_rows, dq + begin_ * ld, ld, true);
}

// turned = from^T.
template <class E>
void BackwardTile<E>::turn(const E* from) {
  const int rows = round_up(m_, 32), columns = round_up(n_, 32);
  if constexpr (std::is_same_v<E, float>) {
    transpose(rows, columns, from, kBlock, b_.turned, kBlock);
  } else {
    transpose_to_panels(rows, columns, from, kBlock, b_.turned);
  }
}

template <class E>
void BackwardTile<E>::add_dk(float* dk, int64_t ld) {
  turn(b_.ds);
  multiply(n_, d_, m_, b_.turned, kBlock, b_.query_rows, dk, ld, true);
}

template <class E>
void BackwardTile<E>::add_dv(float* dv, int64_t ld) {
  turn(b_.probs);
  multiply(n_, dv_, m_, b_.turned, kBlock, b_.dout_rows, dv, ld, true);
}

template struct BackwardBuffers<float>;
template struct BackwardBuffers<Bits16>;
template class BackwardTile<float>;
template class BackwardTile<Bits16>;

}  // namespace ffpa::cpu
