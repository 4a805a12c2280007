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
static_assert(kBlock % 32 == 0, "P and dS are operands with either side as the depth");

}  // namespace

template <class E>
BackwardBuffers<E>::BackwardBuffers(const Problem& p, Carver& c) {
  const int d = static_cast<int>(p.head_dim_qk), dv = static_cast<int>(p.head_dim_v);
  const auto by_d = [&](int columns) { return c.take<E>(int64_t{kBlock} * columns); };
  query = by_d(padded_depth<E>(d));
  key = by_d(padded_depth<E>(d));
  dout = by_d(padded_depth<E>(dv));
  value = by_d(padded_depth<E>(dv));
  query_rows = by_d(padded_columns(d));
  key_rows = by_d(padded_columns(d));
  dout_rows = by_d(padded_columns(dv));
  keys = by_d(padded_depth<E>(d));
  values = by_d(padded_depth<E>(dv));
  probs = by_d(kBlock);
  ds = by_d(kBlock);
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
  key_ = stage<E>(rows_of(p_.k, p_.dtype, batch, kv_head, row, n_, d_), false, needs_.dq, b_.key);
  pack_as_transposed(key_, n_, d_, b_.keys);
  if (needs_.dq) pack_as_is(key_, n_, d_, b_.key_rows);
  const Staged<E> value =
      stage<E>(rows_of(p_.v, p_.dtype, batch, kv_head, row, n_, dv_), false, false, b_.value);
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
  query_ = stage<E>(rows_of(p_.q, p_.dtype, batch, head, row, m_, d_), true, needs_.dkdv, b_.query);
  dout_ =
      stage<E>(rows_of(p_.dout, p_.dtype, batch, head, row, m_, dv_), true, needs_.dkdv, b_.dout);
  if (needs_.dkdv) {
    pack_as_is(query_, m_, d_, b_.query_rows);
    pack_as_is(dout_, m_, dv_, b_.dout_rows);
  }
}

template <class E>
bool BackwardTile<E>::compute(bool full, float* score_gradient) {
  const Visibility& v = scores_->visibility();
  begin_ = std::clamp(visible_queries(v, j0_).begin - i0_, 0, m_) / 16 * 16;
  end_ = std::clamp(visible_queries(v, j0_ + n_ - 1).end - i0_, 0, m_);
  if (begin_ >= end_) return false;
  const int64_t first = int64_t{begin_} * kBlock;
  multiply(end_ - begin_, n_, d_, query_.data + begin_ * query_.ld, query_.ld, b_.keys,
           b_.scores + first, kBlock, false);
  multiply(end_ - begin_, n_, dv_, dout_.data + begin_ * dout_.ld, dout_.ld, b_.values,
           b_.dprobs + first, kBlock, false);
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
}

template <class E>
void BackwardTile<E>::row_gradients(int r, bool full, float* score_gradient) {
  const int padded = round_up(n_, 32);
  const int32_t i = i0_ + r;
  const int64_t row = q_begin_ + i;
  float *s = b_.scores + r * kBlock, *dp = b_.dprobs + r * kBlock, *ds = b_.gradient;
  const float lse = p_.lse.at(batch_, head_, row);
  if (lse == kNone) return clear_rows(r, r + 1);
  scores_->finish_row(i, j0_, n_, padded, full, s, b_.capped);
  exp_row(padded, lse, s);
  if (scores_->has_dropout()) {
    scores_->dropout_row(i, j0_, padded, b_.factor);
    for (int c = 0; c < padded; ++c) dp[c] = b_.factor[c] == 0 ? 0 : dp[c] * b_.factor[c];
  }
  const int64_t token = p_.packed ? row : batch_ * p_.seqlen_q + i;
  gradient_row(padded, s, dp, delta_[head_ * p_.total_q + token], ds);
  // Where one key has all the weight, dP and rowsum(dout * out) are equal but for rounding.
  const float dlse = p_.dlse.defined() ? p_.dlse.at(batch_, head_, row) : 0;
  for (int c = 0; c < padded; ++c) ds[c] = s[c] == 1 ? dlse : ds[c];
  for (int c = 0; score_gradient && c < n_; ++c) score_gradient[r * kBlock + c] += ds[c];
  scores_->gradient_of_products(padded, b_.capped, ds);
  narrow(padded, ds, b_.ds + r * kBlock);
  if (scores_->has_dropout()) {
    for (int c = 0; c < padded; ++c) s[c] *= b_.factor[c];
  }
  narrow(padded, s, b_.probs + r * kBlock);
}

// Rows and keys without any P in this tile may be NaN or infinite: 0 * NaN must not reach a sum.
template <class E>
void BackwardTile<E>::select_visible() {
  if (needs_.dq && !key_.finite) {
    find_hidden(true);
    pack_as_is(key_, n_, d_, b_.key_rows);
    zero_packed_rows(n_, d_, b_.hidden, b_.key_rows);
  }
  if (!needs_.dkdv || (query_.finite && dout_.finite)) return;
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
  multiply(end_ - begin_, d_, n_, b_.ds + begin_ * kBlock, kBlock, b_.key_rows, dq + begin_ * ld,
           ld, true);
}

template <class E>
void BackwardTile<E>::add_dk(float* dk, int64_t ld) {
  transpose(round_up(m_, 32), round_up(n_, 32), b_.ds, kBlock, b_.turned, kBlock);
  multiply(n_, d_, m_, b_.turned, kBlock, b_.query_rows, dk, ld, true);
}

template <class E>
void BackwardTile<E>::add_dv(float* dv, int64_t ld) {
  transpose(round_up(m_, 32), round_up(n_, 32), b_.probs, kBlock, b_.turned, kBlock);
  multiply(n_, dv_, m_, b_.turned, kBlock, b_.dout_rows, dv, ld, true);
}

template struct BackwardBuffers<float>;
template struct BackwardBuffers<Bits16>;
template class BackwardTile<float>;
template class BackwardTile<Bits16>;

}  // namespace ffpa::cpu
