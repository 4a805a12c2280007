// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Forward: one task per query tile and head, online softmax over key tiles.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/amx.h"
#include "cpu/launch.h"
#include "cpu/scores.h"
#include "cpu/threads.h"
#include "cpu/tile.h"
#include "cpu/work.h"
#include "cpu/workspace.h"

namespace ffpa::cpu {
namespace {

constexpr int kBlockN = 128;  // keys
constexpr float kNone = -std::numeric_limits<float>::infinity();
// How far, in powers of two, a later maximum of a row may exceed the one that its sums are scaled
// by before they are rescaled.
constexpr float kSlack = 8;

// Query rows of a tile: more rows use a packed key tile more often, until O leaves the L2 cache.
int block_m(const Problem& p) { return p.head_dim_v <= 512 ? 256 : 128; }

template <class E>
struct Buffers {
  E *query, *source, *keys, *values, *probs;
  float *scores, *out, *factor;
  float *row_max, *row_sum;
  uint8_t* hidden;

  Buffers(const Problem& p, int rows, Carver& c) {
    const int d = static_cast<int>(p.head_dim_qk), dv = static_cast<int>(p.head_dim_v);
    query = c.take<E>(int64_t{padded_rows<E>(rows)} * padded_depth<E>(d));
    source = c.take<E>(int64_t{kBlockN} * std::max(d, dv));
    keys = c.take<E>(int64_t{kBlockN} * padded_depth<E>(d));
    values = c.take<E>(int64_t{padded_depth<E>(kBlockN)} * padded_columns(dv));
    probs = c.take<E>(int64_t{padded_rows<E>(rows)} * kBlockN);
    scores = c.take<float>(int64_t{padded_rows<E>(rows)} * kBlockN);
    out = c.take<float>(int64_t{padded_rows<E>(rows)} * sums_stride(dv));
    factor = c.take<float>(kBlockN);
    row_max = c.take<float>(rows);
    row_sum = c.take<float>(rows);
    hidden = c.take<uint8_t>(kBlockN);
  }
};

template <class E>
class ForwardTile {
 public:
  ForwardTile(const Problem& p, const Buffers<E>& buffers, int64_t batch, int64_t head)
      : p_(p),
        b_(buffers),
        sequence_(p.sequence(batch)),
        scores_(p, sequence_, batch, head),
        batch_(batch),
        head_(head),
        d_(static_cast<int>(p.head_dim_qk)),
        dv_(static_cast<int>(p.head_dim_v)),
        out_ld_(sums_stride(dv_)) {}

  // Rows [first, first + block) of the sequence, as far as it goes.
  void run(int32_t first, int block) {
    first_ = first;
    const int rows = std::min(block, sequence_.rows_q - first);
    m_ = std::clamp(sequence_.len_q - first, 0, rows);
    if (m_ > 0) {
      visit_keys(block);
      // NaN or infinite values that a row does not see may have come in as 0 * NaN: once more, with
      // such values selected away.
      if (!out_is_finite()) {
        careful_ = true;
        visit_keys(block);
      }
    }
    for (int r = 0; r < m_; ++r) finish_row(r);
    for (int r = m_; r < rows; ++r) store_empty(r);  // behind seqused; reuses row 0 of the sums
  }

 private:
  bool out_is_finite() const {
    for (int r = 0; r < m_; ++r) {
      if (has_non_finite(dv_, b_.out + int64_t{r} * out_ld_)) return false;
    }
    return true;
  }

  void visit_keys(int block) {
    std::fill_n(b_.row_max, m_, kNone);
    std::fill_n(b_.row_sum, m_, 0.f);
    std::fill_n(b_.out, int64_t{padded_rows<E>(m_)} * out_ld_, 0.f);
    const int64_t row = sequence_.q_begin + first_;
    query_ = stage_left<E>(rows_of(p_.q, p_.dtype, batch_, head_, row, m_, d_), b_.query);
    const TileRange tiles = key_tiles(scores_.visibility(), first_, block, kBlockN);
    for (int32_t t = tiles.begin; t < tiles.end; ++t) visit(t * kBlockN, tiles.full(t));
  }

  Matrix keys_of(const Rows& rows, int32_t j0, int n, int columns) const {
    return rows_of(rows, p_.dtype, batch_, p_.kv_head(head_), sequence_.k_begin + j0, n, columns);
  }

  void visit(int32_t j0, bool full) {
    const int n = std::min(kBlockN, sequence_.len_k - j0);
    // Rows of the tile that see any of these keys, in whole groups of 16: a product of 16-bit
    // operands adds to all rows of a group.
    const Visibility& v = scores_.visibility();
    const int seen = std::clamp(visible_queries(v, j0).begin - first_, 0, m_) / 16 * 16;
    const int last = std::clamp(visible_queries(v, j0 + n - 1).end - first_, 0, m_);
    if (seen >= last) return;
    const int end = std::min(round_up(last, 16), m_);

    const Staged<E> keys = stage_right<E>(keys_of(p_.k, j0, n, d_), b_.source);
    pack_as_transposed(keys, n, d_, b_.keys);
    multiply(end - seen, n, d_, query_.data + seen * query_.ld, query_.ld, b_.keys,
             b_.scores + int64_t{seen} * kBlockN, kBlockN, false);
    for (int r = seen; r < end; ++r) softmax_row(r, j0, n, full);

    const Staged<E> values = stage_right<E>(keys_of(p_.v, j0, n, dv_), b_.source);
    pack_as_is(values, n, dv_, b_.values);
    if (careful_) hide_unseen_values(seen, end, n);
    const int lda = left_stride(n);
    multiply(end - seen, dv_, n, b_.probs + int64_t{seen} * lda, lda, b_.values,
             b_.out + int64_t{seen} * out_ld_, out_ld_, true);
  }

  // Columns of a row of scores that are computed, and row stride of P.
  static int padded(int n) { return round_up(n, 32); }
  static int left_stride(int n) { return std::is_same_v<E, float> ? kBlockN : padded(n); }

  void softmax_row(int r, int32_t j0, int n, bool full) {
    float* s = b_.scores + int64_t{r} * kBlockN;
    E* probs = left_row(b_.probs, r, left_stride(n));
    const float scale = scores_.exponent_scale();
    const float most = scores_.finish_row(first_ + r, j0, n, padded(n), full, s, nullptr);
    if (most == kNone && !has_nan(padded(n), s)) {
      clear_left_row(padded(n), probs);
      if (careful_) std::fill_n(s, padded(n), 0.f);
      return;
    }
    const float before = b_.row_max[r];
    if (before == kNone || (most - before) * scale > kSlack) raise_max(r, most, scale);
    const float shift = b_.row_max[r] == kNone ? 0 : b_.row_max[r];
    if (!careful_ && !scores_.has_dropout()) {
      b_.row_sum[r] += exp2_row(padded(n), scale, shift, s, probs);
      return;
    }
    b_.row_sum[r] += exp2_row(padded(n), scale, shift, s, s);
    if (scores_.has_dropout()) {
      scores_.dropout_row(first_ + r, j0, padded(n), b_.factor);
      for (int c = 0; c < padded(n); ++c) s[c] *= b_.factor[c];
    }
    write_left_row(padded(n), s, probs);
  }

  void raise_max(int r, float most, float scale) {
    const float rescale = std::exp2((b_.row_max[r] - most) * scale);  // 0 for a row's first keys
    if (b_.row_max[r] != kNone) multiply_row(dv_, rescale, b_.out + int64_t{r} * out_ld_);
    b_.row_sum[r] *= rescale;
    b_.row_max[r] = most;
  }

  // A maximum of -inf hides NaN scores: then the row is not empty but NaN.
  static bool has_nan(int n, const float* s) {
    return std::any_of(s, s + n, [](float x) { return std::isnan(x); });
  }

  // Selects away the values that no row of the tile sees. b_.scores holds P.
  void hide_unseen_values(int begin, int end, int n) {
    std::fill_n(b_.hidden, n, uint8_t{1});
    for (int r = begin; r < end; ++r) {
      for (int c = 0; c < n; ++c) b_.hidden[c] &= b_.scores[int64_t{r} * kBlockN + c] == 0;
    }
    zero_packed_rows(n, dv_, b_.hidden, b_.values);
  }

  void store_empty(int r) {
    std::fill_n(b_.out, dv_, 0.f);
    store(r, b_.out, kNone);
  }

  void finish_row(int r) {
    float* o = b_.out + int64_t{r} * out_ld_;
    double most = static_cast<double>(b_.row_max[r]) * scores_.score_scale();
    double sum = b_.row_sum[r], weight = 1;
    if (sum == 0) return store_row_without_keys(r, o);
    if (p_.sink) {
      const double sink = p_.sink[head_ * p_.sink_stride], now = std::max(most, sink);
      weight = std::exp(most - now);
      sum = sum * weight + std::exp(sink - now);
      most = now;
    }
    multiply_row(dv_, static_cast<float>(weight / sum), o);
    store(r, o, static_cast<float>(most + std::log(sum)));
  }

  void store_row_without_keys(int r, float* o) {
    std::fill_n(o, dv_, 0.f);
    store(r, o, kNone);
  }

  void store(int r, const float* o, float lse) {
    const int64_t row = sequence_.q_begin + first_ + r;
    const Matrix to = rows_of(p_.out, p_.dtype, batch_, head_, row, 1, dv_);
    cpu::store_row(dv_, o, p_.dtype, const_cast<char*>(to.data));
    if (p_.lse.defined()) p_.lse.at(batch_, head_, row) = lse;
  }

  const Problem& p_;
  const Buffers<E>& b_;
  const Sequence sequence_;
  const Scores scores_;
  const int64_t batch_, head_;
  const int d_, dv_, out_ld_;
  int32_t first_ = 0;
  int m_ = 0;
  bool careful_ = false;
  Staged<E> query_{};
};

struct Layout {
  int threads;
  int64_t max_tiles;
  size_t list_bytes, slot_bytes;
};

template <class E>
Layout layout(const Problem& p) {
  Layout l;
  l.max_tiles = max_work_tiles(p, TileOf::kQueries, block_m(p));
  l.threads = static_cast<int>(std::min<int64_t>(thread_count(p), l.max_tiles * p.heads_q));
  Carver list(nullptr), slot(nullptr);
  list.take<WorkTile>(l.max_tiles);
  Buffers<E>(p, block_m(p), slot);
  l.list_bytes = list.used();
  l.slot_bytes = slot.used();
  return l;
}

template <class E>
void run(const Problem& p, Workspace workspace) {
  const Layout l = layout<E>(p);
  auto* tiles = static_cast<WorkTile*>(workspace.data);
  char* slots = static_cast<char*>(workspace.data) + l.list_bytes;
  const int64_t count = list_work_tiles(p, TileOf::kQueries, block_m(p), kBlockN, tiles);
  run_tasks(l.threads, count * p.heads_q, [&](int64_t i, int slot) {
    Carver carver(slots + slot * l.slot_bytes);
    const Buffers<E> buffers(p, block_m(p), carver);
    const WorkTile& tile = tiles[i / p.heads_q];
    ForwardTile<E>(p, buffers, tile.batch, i % p.heads_q).run(tile.first, block_m(p));
    release_matrix_unit<E>();
  });
}

}  // namespace

size_t forward_workspace_bytes(const Problem& p) {
  const Layout l = uses_amx(p) ? layout<Bits16>(p) : layout<float>(p);
  return l.list_bytes + l.threads * l.slot_bytes;
}

Status forward(const Problem& p, Workspace workspace, void*) {
  if (uses_amx(p)) {
    run<Bits16>(p, workspace);
  } else {
    run<float>(p, workspace);
  }
  return {};
}

std::string describe_forward(const Problem& p) {
  return describe_engine(p) + ", tiles of " + std::to_string(block_m(p)) + " queries x " +
         std::to_string(kBlockN) + " keys";
}

}  // namespace ffpa::cpu
