// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "reference/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "reference/philox.h"

namespace ffpa::reference {
namespace {

template <class Real>
struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<Real> data;

  Matrix() = default;
  Matrix(int64_t r, int64_t c) : rows(r), columns(c), data(static_cast<size_t>(r * c)) {}
  Real* operator[](int64_t i) { return data.data() + i * columns; }
  const Real* operator[](int64_t i) const { return data.data() + i * columns; }
};

template <class Real>
Matrix<Real> transpose(const Matrix<Real>& a) {
  Matrix<Real> t(a.columns, a.rows);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.columns; ++j) t[j][i] = a[i][j];
  }
  return t;
}

// a b, where the terms a[i][j] b[j] of `selected[i][j]` = 0 are left out, whatever b[j] holds. One
// running sum for each element, as a matrix product kernel keeps it in a register.
template <class Real>
Matrix<Real> product(const Matrix<Real>& a, const Matrix<Real>& b, const Matrix<char>* selected) {
  Matrix<Real> c(a.rows, b.columns);
  for (int64_t i = 0; i < a.rows; ++i) {
    Real* sum = c[i];
    for (int64_t j = 0; j < a.columns; ++j) {
      if (selected && !(*selected)[i][j]) continue;
      const Real x = a[i][j];
      const Real* row = b[j];
      for (int64_t d = 0; d < b.columns; ++d) sum[d] += x * row[d];
    }
  }
  return c;
}

// The layout of rows inside an array: [batch, heads, seqlen, columns] or [tokens, heads, columns].
struct RowIndex {
  bool packed;
  int64_t heads, seqlen, columns;
  const std::vector<int64_t>& begin;

  int64_t operator()(int64_t b, int64_t h, int64_t i) const {
    return packed ? ((begin[b] + i) * heads + h) * columns
                  : ((b * heads + h) * seqlen + i) * columns;
  }
};

template <class Real>
class Engine {
 public:
  Engine(const Call& call, DType stored) : call_(call), stored_(stored) {}

  Result run() {
    allocate();
    for (b_ = 0; b_ < call_.batch; ++b_) {
      for (h_ = 0; h_ < call_.heads_q; ++h_) {
        forward_head();
        if (call_.dout.defined()) backward_head();
      }
    }
    for (Array* a : {&result_.dk, &result_.dv}) {
      for (double& x : a->data) x = static_cast<double>(store(static_cast<Real>(x)));
    }
    return std::move(result_);
  }

 private:
  // Adds in the precision of Real.
  static void add(double* sum, Real x) { *sum = static_cast<double>(static_cast<Real>(*sum) + x); }
  // What is kept of an intermediate result.
  Real store(Real x) const {
    if constexpr (std::is_same_v<Real, double>) {
      return x;
    } else {
      return rounded(stored_, x);
    }
  }
  void store_all(Matrix<Real>* m) const {
    for (Real& x : m->data) x = store(x);
  }

  int64_t nq() const { return call_.length_q[b_]; }
  int64_t nk() const { return call_.length_k[b_]; }
  int64_t kv_head() const { return h_ / (call_.heads_q / call_.heads_kv); }
  int64_t q_row(int64_t columns, int64_t i) const {
    return RowIndex{call_.packed, call_.heads_q, call_.seqlen_q, columns, call_.begin_q}(b_, h_, i);
  }
  int64_t k_row(int64_t columns, int64_t j) const {
    return RowIndex{call_.packed, call_.heads_kv, call_.seqlen_k, columns, call_.begin_k}(
        b_, kv_head(), j);
  }
  int64_t statistic(int64_t i) const {
    const int64_t tokens = call_.packed ? call_.q.shape[0] : 0;
    return call_.packed ? h_ * tokens + call_.begin_q[b_] + i
                        : (b_ * call_.heads_q + h_) * call_.seqlen_q + i;
  }
  // Element of the mask that query i and key j meet.
  int64_t mask_index(int64_t i, int64_t j) const {
    const std::vector<int64_t>& shape = call_.mask.shape;
    const int64_t at[4] = {b_, h_, i, j};
    int64_t index = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      index = index * shape[d] + (shape[d] == 1 ? 0 : at[4 - shape.size() + d]);
    }
    return index;
  }

  void allocate() {
    result_.out = Array(call_.q.shape);
    result_.out.shape.back() = call_.head_dim_v;
    result_.out = Array(result_.out.shape);
    result_.lse =
        Array(call_.packed ? std::vector<int64_t>{call_.heads_q, call_.q.shape[0]}
                           : std::vector<int64_t>{call_.batch, call_.heads_q, call_.seqlen_q},
              -std::numeric_limits<double>::infinity());
    if (!call_.dout.defined()) return;
    result_.dq = Array(call_.q.shape);
    result_.dk = Array(call_.k.shape);
    result_.dv = Array(call_.v.shape);
    if (call_.sink.defined()) result_.dsink = Array(call_.sink.shape);
    if (call_.mask.defined() && !call_.mask_is_bool) result_.dmask = Array(call_.mask.shape);
  }

  template <class Row>
  Matrix<Real> gather(const Array& from, int64_t rows, int64_t columns, Row row) const {
    Matrix<Real> m(rows, columns);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t d = 0; d < columns; ++d) {
        m[i][d] = static_cast<Real>(from.data[row(columns, i) + d]);
      }
    }
    return m;
  }
  Matrix<Real> gather_q(const Array& from, int64_t columns) const {
    return gather(from, nq(), columns, [this](int64_t c, int64_t i) { return q_row(c, i); });
  }
  Matrix<Real> gather_k(const Array& from, int64_t columns) const {
    return gather(from, nk(), columns, [this](int64_t c, int64_t j) { return k_row(c, j); });
  }

  bool in_window(int64_t i, int64_t j) const {
    const int64_t distance = j - (i + nk() - nq());
    return (call_.window_left < 0 || distance >= -call_.window_left) &&
           (call_.window_right < 0 || distance <= call_.window_right);
  }

  // scores_, slope_ (d score / d scaled product) and visible_ of this head.
  void compute_scores() {
    const Real root = static_cast<Real>(std::sqrt(std::abs(call_.softmax_scale)));
    q_scale_ = call_.softmax_scale < 0 ? -root : root;
    k_scale_ = root;
    q_ = gather_q(call_.q, call_.head_dim);
    k_ = gather_k(call_.k, call_.head_dim);
    v_ = gather_k(call_.v, call_.head_dim_v);
    for (Real& x : q_.data) x = store(x * q_scale_);
    for (Real& x : k_.data) x = store(x * k_scale_);
    scores_ = product(q_, transpose(k_), nullptr);
    store_all(&scores_);
    slope_ = Matrix<Real>(nq(), nk());
    visible_ = Matrix<char>(nq(), nk());
    for (int64_t i = 0; i < nq(); ++i) {
      for (int64_t j = 0; j < nk(); ++j) finish_score(i, j);
    }
  }

  void finish_score(int64_t i, int64_t j) {
    constexpr Real kHidden = -std::numeric_limits<Real>::infinity();
    Real s = scores_[i][j], slope = 1;
    if (call_.softcap > 0) {
      const Real cap = static_cast<Real>(call_.softcap), t = store(std::tanh(store(s / cap)));
      s = store(cap * t);
      slope = 1 - t * t;
    }
    if (call_.alibi_slopes.defined()) {
      const int64_t b = call_.alibi_slopes.shape.size() == 2 ? b_ : 0;
      const Real alibi = static_cast<Real>(call_.alibi_slopes.data[b * call_.heads_q + h_]);
      s = store(s - alibi * static_cast<Real>(std::abs(i + nk() - nq() - j)));
    }
    bool visible = in_window(i, j);
    if (visible && call_.mask.defined()) {
      const double mask = call_.mask.data[mask_index(i, j)];
      if (!call_.mask_is_bool) s = store(s + static_cast<Real>(mask));
      visible = call_.mask_is_bool ? mask != 0 : !(std::isinf(mask) && mask < 0);
    }
    scores_[i][j] = visible ? s : kHidden;
    slope_[i][j] = slope;
    visible_[i][j] = visible;
  }

  bool sees_a_key(int64_t i) const {
    return std::any_of(visible_[i], visible_[i] + nk(), [](char x) { return x != 0; });
  }

  void forward_head() {
    compute_scores();
    p_ = Matrix<Real>(nq(), nk());
    dropped_ = Matrix<Real>(nq(), nk());
    lse_.assign(static_cast<size_t>(nq()), -std::numeric_limits<Real>::infinity());
    for (int64_t i = 0; i < nq(); ++i) {
      if (sees_a_key(i)) softmax_row(i);
      result_.lse.data[statistic(i)] = static_cast<double>(lse_[i]);
      for (int64_t j = 0; j < nk(); ++j) {
        dropped_[i][j] = keeps(i, j) ? store(p_[i][j] * keep_scale()) : Real{0};
      }
    }
    set_query_rows(product(dropped_, v_, &visible_), 1, &result_.out);
  }

  void softmax_row(int64_t i) {
    const Real* s = scores_[i];
    Real most = *std::max_element(s, s + nk()), sum = 0;
    if (call_.sink.defined()) most = std::max(most, sink());
    for (int64_t j = 0; j < nk(); ++j) sum += std::exp(s[j] - most);
    if (call_.sink.defined()) sum += std::exp(sink() - most);
    lse_[i] = most + std::log(sum);
    for (int64_t j = 0; j < nk(); ++j) p_[i][j] = store(std::exp(s[j] - most) / sum);
  }

  Real sink() const { return static_cast<Real>(call_.sink.data[h_]); }
  Real keep_scale() const { return static_cast<Real>(1 / (1 - call_.dropout_p)); }
  bool keeps(int64_t i, int64_t j) const {
    if (call_.dropout_p == 0) return true;
    const int64_t row = (b_ * call_.heads_q + h_) * call_.seqlen_q + i;
    return dropout_keeps(call_.dropout_seed, call_.dropout_offset,
                         static_cast<uint64_t>(row * call_.seqlen_k + j), call_.dropout_p);
  }

  void backward_head() {
    const Matrix<Real> dout = gather_q(call_.dout, call_.head_dim_v);
    const Matrix<char> seen_by = transpose(visible_);
    add_key_rows(product(transpose(dropped_), dout, &seen_by), 1, &result_.dv);

    Matrix<Real> ds = product(dout, transpose(v_), nullptr);  // gradient of the dropped P, so far
    for (int64_t i = 0; i < nq(); ++i) gradient_row(i, dout, ds[i]);

    set_query_rows(product(ds, k_, &visible_), q_scale_, &result_.dq);
    add_key_rows(product(transpose(ds), q_, &seen_by), k_scale_, &result_.dk);
  }

  // From the gradients of the dropped P of one row to those of its scaled products.
  void gradient_row(int64_t i, const Matrix<Real>& dout, Real* ds) {
    if (!sees_a_key(i)) return void(std::fill(ds, ds + nk(), Real{0}));
    for (int64_t j = 0; j < nk(); ++j) {
      ds[j] = visible_[i][j] && keeps(i, j) ? store(store(ds[j]) * keep_scale()) : Real{0};
    }
    Real delta = 0;
    for (int64_t d = 0; d < dout.columns; ++d) {
      delta += dout[i][d] * static_cast<Real>(result_.out.data[q_row(dout.columns, i) + d]);
    }
    if (call_.dlse.defined()) delta -= static_cast<Real>(call_.dlse.data[statistic(i)]);
    for (int64_t j = 0; j < nk(); ++j) {
      ds[j] = visible_[i][j] ? store(p_[i][j] * (ds[j] - delta)) : Real{0};
      if (result_.dmask.defined()) add(&result_.dmask.data[mask_index(i, j)], ds[j]);
      ds[j] = store(ds[j] * slope_[i][j]);
    }
    if (result_.dsink.defined()) {
      const Real p = store(std::exp(sink() - lse_[i]));
      add(&result_.dsink.data[h_], -store(p * delta));
    }
  }

  // Adds to the gradient of this head's keys (values): heads of a group share them.
  void add_key_rows(const Matrix<Real>& rows, Real scale, Array* to) {
    for (int64_t j = 0; j < nk(); ++j) {
      for (int64_t d = 0; d < rows.columns; ++d) {
        add(&to->data[k_row(rows.columns, j) + d], store(store(rows[j][d]) * scale));
      }
    }
  }

  void set_query_rows(const Matrix<Real>& rows, Real scale, Array* to) const {
    for (int64_t i = 0; i < rows.rows; ++i) {
      for (int64_t d = 0; d < rows.columns; ++d) {
        to->data[q_row(rows.columns, i) + d] =
            static_cast<double>(store(store(rows[i][d]) * scale));
      }
    }
  }

  const Call& call_;
  const DType stored_;
  Result result_;

  // Of the current sequence and head.
  int64_t b_ = 0, h_ = 0;
  Real q_scale_ = 1, k_scale_ = 1;
  Matrix<Real> q_, k_, v_;  // q and k scaled
  Matrix<Real> scores_, slope_, p_, dropped_;
  Matrix<char> visible_;
  std::vector<Real> lse_;
};

// First rows and lengths of the sequences of one side.
void read_sequences(const Tensor& cu_seqlens, const Tensor& seqused, int64_t batch, int64_t seqlen,
                    std::vector<int64_t>* begin, std::vector<int64_t>* length) {
  const Array cu = read(cu_seqlens), used = read(seqused);
  for (int64_t b = 0; b < batch; ++b) {
    begin->push_back(cu.defined() ? static_cast<int64_t>(cu.data[b]) : 0);
    const int64_t rows = cu.defined() ? static_cast<int64_t>(cu.data[b + 1] - cu.data[b]) : seqlen;
    length->push_back(used.defined() ? static_cast<int64_t>(used.data[b]) : rows);
  }
}

}  // namespace

Call read_call(const AttentionInputs& inputs, const AttentionOptions& options, const Tensor& dout,
               const Tensor& dlse) {
  Call c;
  c.packed = inputs.cu_seqlens_q.defined();
  c.batch = c.packed ? inputs.cu_seqlens_q.shape[0] - 1 : inputs.q.shape[0];
  c.heads_q = inputs.q.shape[1];
  c.heads_kv = inputs.k.shape[1];
  c.head_dim = inputs.q.shape[inputs.q.rank - 1];
  c.head_dim_v = inputs.v.shape[inputs.v.rank - 1];
  c.seqlen_q = c.packed ? inputs.max_seqlen_q : inputs.q.shape[2];
  c.seqlen_k = c.packed ? inputs.max_seqlen_k : inputs.k.shape[2];
  read_sequences(inputs.cu_seqlens_q, inputs.seqused_q, c.batch, c.seqlen_q, &c.begin_q,
                 &c.length_q);
  read_sequences(inputs.cu_seqlens_k, inputs.seqused_k, c.batch, c.seqlen_k, &c.begin_k,
                 &c.length_k);
  c.q = read(inputs.q);
  c.k = read(inputs.k);
  c.v = read(inputs.v);
  c.mask = read(inputs.mask);
  c.mask_is_bool = inputs.mask.dtype == DType::kBool;
  c.alibi_slopes = read(inputs.alibi_slopes);
  c.sink = read(inputs.sink);
  // The library computes with float32 options.
  c.softmax_scale = static_cast<float>(
      options.softmax_scale.value_or(1 / std::sqrt(static_cast<double>(c.head_dim))));
  c.softcap = static_cast<float>(options.softcap);
  c.window_left = options.window_left;
  c.window_right = options.causal ? 0 : options.window_right;
  c.dropout_p = options.dropout_p;
  c.dropout_seed = options.dropout_seed;
  c.dropout_offset = options.dropout_offset;
  c.dout = read(dout);
  c.dlse = read(dlse);
  return c;
}

Result attention(const Call& call) { return Engine<double>(call, DType::kOther).run(); }

Result math_attention(const Call& call, DType dtype) { return Engine<float>(call, dtype).run(); }

}  // namespace ffpa::reference
