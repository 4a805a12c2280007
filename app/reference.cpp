// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "reference.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

namespace ffpa::app {
namespace {

// One sequence, one KV head and the query heads that share it: nobody else writes their rows.
class Group {
 public:
  Group(const Shape& shape, const Step& step, Result* result, int64_t kv_head, int32_t begin,
        int32_t length)
      : shape_(shape),
        step_(step),
        result_(*result),
        kv_head_(kv_head),
        begin_(begin),
        length_(length),
        d_(shape.head_dim),
        scale_(1 / std::sqrt(static_cast<double>(shape.head_dim))),
        p_(length),
        ds_(length) {}

  void run() {
    const int64_t group = shape_.heads_q / shape_.heads_kv;
    for (int64_t h = kv_head_ * group; h < (kv_head_ + 1) * group; ++h) {
      for (int32_t i = 0; i < length_; ++i) query(h, i);
    }
  }

 private:
  int64_t q_at(int64_t head, int32_t i) const {
    return ((begin_ + i) * shape_.heads_q + head) * d_;
  }
  int64_t k_at(int32_t j) const { return ((begin_ + j) * shape_.heads_kv + kv_head_) * d_; }

  double dot(const float* a, const float* b) const {
    double sum = 0;
    for (int64_t c = 0; c < d_; ++c) sum += static_cast<double>(a[c]) * b[c];
    return sum;
  }
  void add(double factor, const float* from, double* to) const {
    for (int64_t c = 0; c < d_; ++c) to[c] += factor * from[c];
  }

  void query(int64_t head, int32_t i) {
    const float *q = &step_.q[q_at(head, i)], *dout = &step_.dout[q_at(head, i)];
    const int32_t keys = shape_.causal ? i + 1 : length_;
    double most = -INFINITY, sum = 0, delta = 0;
    for (int32_t j = 0; j < keys; ++j) {
      p_[j] = scale_ * dot(q, &step_.k[k_at(j)]);
      most = std::max(most, p_[j]);
    }
    for (int32_t j = 0; j < keys; ++j) sum += p_[j] = std::exp(p_[j] - most);
    for (int32_t j = 0; j < keys; ++j) {
      p_[j] /= sum;
      ds_[j] = dot(dout, &step_.v[k_at(j)]);
      delta += p_[j] * ds_[j];
    }
    for (int32_t j = 0; j < keys; ++j) {
      const double ds = p_[j] * (ds_[j] - delta) * scale_;
      add(p_[j], &step_.v[k_at(j)], &result_.out[q_at(head, i)]);
      add(p_[j], dout, &result_.dv[k_at(j)]);
      add(ds, &step_.k[k_at(j)], &result_.dq[q_at(head, i)]);
      add(ds, q, &result_.dk[k_at(j)]);
    }
  }

  const Shape& shape_;
  const Step& step_;
  Result& result_;
  const int64_t kv_head_, begin_;
  const int32_t length_;
  const int64_t d_;
  const double scale_;
  Doubles p_, ds_;
};

}  // namespace

Result reference(const Shape& shape, const Step& step, const std::vector<int64_t>& kv_heads,
                 const std::function<void(double)>& progress) {
  Result result{Doubles(step.q.size()), Doubles(step.q.size()), Doubles(step.k.size()),
                Doubles(step.k.size())};
  const std::vector<int32_t> cu = shape.cu_seqlens();
  const size_t tasks = kv_heads.size() * shape.lengths.size();
  std::atomic<size_t> next{0}, done{0};
  const auto work = [&](bool reports) {
    for (size_t t; (t = next++) < tasks;) {
      const size_t s = t % shape.lengths.size();
      Group(shape, step, &result, kv_heads[t / shape.lengths.size()], cu[s], shape.lengths[s])
          .run();
      ++done;
      if (reports) progress(static_cast<double>(done) / static_cast<double>(tasks));
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i)
    threads.emplace_back(work, false);
  work(true);
  for (std::thread& thread : threads) thread.join();
  return result;
}

}  // namespace ffpa::app
