// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// One task: some query heads of one key/value head, some queries. It walks the key tiles that the
// queries see and keeps a running softmax.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/launch.h"
#include "cpu/threads.h"
#include "cpu/tile.h"

namespace ffpa::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Rows (queries x heads) of a task. The more, the fewer times keys and values are packed.
constexpr int kMaxRows = 256;
// Also the order in which sums are formed, so it depends on nothing.
constexpr int kKeysPerTile = 256;
static_assert(kKeysPerTile <= kMaxKeysPerTile);

struct Task {
  int64_t batch;
  int32_t head;  // the first of heads_per_task
  int32_t query;
  int32_t key_tiles;
};

struct Plan {
  int heads_per_task, queries_per_task;
  int max_keys;  // of a tile of this problem
  int workers;
  int64_t max_tasks;
};

Plan make_plan(const Problem& p) {
  Plan plan;
  const int seqlen_q = static_cast<int>(std::clamp<int64_t>(p.seqlen_q, 1, kMaxRows));
  const int heads = std::clamp(kMaxRows / seqlen_q, 16, kMaxRows);
  plan.heads_per_task = static_cast<int>(std::min<int64_t>(p.group(), heads));
  const int queries = kMaxRows / plan.heads_per_task;
  plan.queries_per_task = std::min(queries >= 16 ? queries / 16 * 16 : queries, seqlen_q);
  plan.max_keys = static_cast<int>(std::clamp<int64_t>(p.seqlen_k, 1, kKeysPerTile));
  const int64_t tiles =
      p.packed ? p.total_q / plan.queries_per_task + p.batch
               : p.batch * ((p.seqlen_q + plan.queries_per_task - 1) / plan.queries_per_task);
  const int64_t chunks = (p.group() + plan.heads_per_task - 1) / plan.heads_per_task;
  plan.max_tasks = tiles * p.heads_kv * chunks;
  const double flops = 2.0 * static_cast<double>(p.total_q) * static_cast<double>(p.heads_q) *
                       static_cast<double>(p.seqlen_k) *
                       static_cast<double>(p.head_dim_qk + p.head_dim_v);
  plan.workers = worker_count(p, flops);
  return plan;
}

// Longest first, so that no long task is the last one.
int64_t list_tasks(const Problem& p, const Plan& plan, Task* tasks) {
  int64_t count = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    const Sequence s = p.sequence(b);
    for (int32_t query = 0; query < s.rows_q; query += plan.queries_per_task) {
      const TileRange tiles =
          key_tiles(p.visibility(s), query, plan.queries_per_task, kKeysPerTile);
      for (int64_t kv = 0; kv < p.heads_kv; ++kv) {
        for (int64_t g = 0; g < p.group(); g += plan.heads_per_task) {
          const auto head = static_cast<int32_t>(kv * p.group() + g);
          tasks[count++] = {b, head, query, tiles.count()};
        }
      }
    }
  }
  std::sort(tasks, tasks + count, [](const Task& x, const Task& y) {
    if (x.key_tiles != y.key_tiles) return x.key_tiles > y.key_tiles;
    if (x.batch != y.batch) return x.batch < y.batch;
    return x.head != y.head ? x.head < y.head : x.query < y.query;
  });
  return count;
}

class Worker {
 public:
  Worker(const Problem& p, const Plan& plan, Arena& arena)
      : p_(p), plan_(plan), matmul_(matmul_kernels(p.dtype)), rows_(row_kernels()) {
    const int m = plan.heads_per_task * plan.queries_per_task, n = plan.max_keys;
    const int d = static_cast<int>(p.head_dim_qk), dv = static_cast<int>(p.head_dim_v);
    q_panel_ = arena.take<char>(matmul_.panel_bytes(m, d));
    k_panel_ = arena.take<char>(matmul_.panel_bytes(n, d));
    v_panel_ = arena.take<char>(matmul_.panel_bytes(dv, n));
    p_panel_ = arena.take<char>(matmul_.panel_bytes(m, n));
    scores_ = FloatTile::take(arena, m, n);
    sums_ = FloatTile::take(arena, m, dv);
    q_rows_ = TileRows::take(arena, m);
    p_rows_ = TileRows::take(arena, m);
    k_rows_ = TileRows::take(arena, n);
    v_rows_ = TileRows::take(arena, n);
    band_ = TileBand::take(arena, m, n);
    row_max_ = arena.take<float>(m);
    row_sum_ = arena.take<float>(m);
    correction_ = arena.take<float>(m);
  }

  void run(const Task& task) {
    s_ = p_.sequence(task.batch);
    batch_ = task.batch;
    kv_head_ = p_.kv_head(task.head);
    head_ = task.head;
    heads_ = static_cast<int>(
        std::min<int64_t>(plan_.heads_per_task, (kv_head_ + 1) * p_.group() - head_));
    query_ = task.query;
    const int32_t end = std::min(query_ + plan_.queries_per_task, s_.rows_q);
    queries_ = std::clamp(s_.len_q - query_, 0, end - query_);
    write_empty(queries_, end - query_);
    if (queries_ == 0) return;

    const TileRange tiles = key_tiles(p_.visibility(s_), query_, queries_, kKeysPerTile);
    if (tiles.count() == 0) {
      write_empty(0, queries_);
      return;
    }
    pack_queries();
    careful_ = false;
    add_key_tiles(tiles);
    if (!sums_are_finite()) {  // once more, with the rows of V that are not finite set apart
      careful_ = true;
      add_key_tiles(tiles);
    }
    write_results();
  }

 private:
  int rows_in_use() const { return heads_ * queries_; }
  int head_dim() const { return static_cast<int>(p_.head_dim_qk); }
  int head_dim_v() const { return static_cast<int>(p_.head_dim_v); }
  // Row h * queries_ + i of every tile is query i of head h.
  int64_t q_row(int i) const { return s_.q_begin + query_ + i; }

  void pack_queries() {
    q_rows_.begin(p_.dtype, head_dim());
    for (int h = 0; h < heads_; ++h) {
      for (int i = 0; i < queries_; ++i) q_rows_.append(row_at(p_.q, head_ + h, q_row(i)));
    }
    if (matmul_.finite_only) q_rows_.find_loose(rows_);
    matmul_.pack(Side::kLeft, RowsAlong::kKept, q_rows_.all(), q_panel_);
  }

  void add_key_tiles(const TileRange& tiles) {
    std::fill(row_max_, row_max_ + rows_in_use(), -kInfinity);
    std::fill(row_sum_, row_sum_ + rows_in_use(), 0.f);
    for (int32_t t = tiles.begin; t < tiles.end; ++t) {
      add_key_tile(t * kKeysPerTile, tiles.full(t), t > tiles.begin);
    }
  }

  bool sums_are_finite() const {
    for (int r = 0; r < rows_in_use(); ++r) {
      if (!rows_.all_finite(sums_.row(r), DType::kFloat32, head_dim_v())) return false;
    }
    return true;
  }

  void add_key_tile(int32_t key, bool full, bool later) {
    const int keys = std::min(kKeysPerTile, s_.len_k - key);
    band_.set(p_.visibility(s_), query_, heads_, queries_, key, keys);
    compute_scores(key, keys);
    for (int h = 0; h < heads_; ++h) {
      const int first = h * queries_;
      const ScoreRules rules = score_rules(p_, batch_, head_ + h, s_);
      rows_.softmax(rules, {scores_.row(first), scores_.stride, query_, key, queries_, keys, full},
                    row_max_ + first, row_sum_ + first, correction_ + first);
    }
    if (later) {
      for (int r = 0; r < rows_in_use(); ++r) {
        if (correction_[r] != 1) rows_.scale(sums_.row(r), head_dim_v(), correction_[r]);
      }
    }
    add_values(key, keys, later);
  }

  void compute_scores(int32_t key, int keys) {
    k_rows_.begin(p_.dtype, head_dim());
    for (int j = 0; j < keys; ++j) k_rows_.append(row_at(p_.k, kv_head_, s_.k_begin + key + j));
    matmul_.pack(Side::kRight, RowsAlong::kKept, k_rows_.all(), k_panel_);
    matmul_.multiply(rows_in_use(), keys, head_dim(), q_panel_, k_panel_, scores_.data,
                     scores_.stride, false, band_.scores());
    if (matmul_.finite_only) {
      k_rows_.find_loose(rows_);
      redo_loose_products(rows_, q_rows_, k_rows_, scores_);
    }
  }

  void add_values(int32_t key, int keys, bool later) {
    p_rows_.begin(DType::kFloat32, keys);
    p_rows_.append(scores_, rows_in_use());
    matmul_.pack(Side::kLeft, RowsAlong::kKept, p_rows_.all(), p_panel_);
    v_rows_.begin(p_.dtype, head_dim_v());
    for (int j = 0; j < keys; ++j) v_rows_.append(row_at(p_.v, kv_head_, s_.k_begin + key + j));
    if (careful_) v_rows_.find_loose(rows_);
    matmul_.pack(Side::kRight, RowsAlong::kSummed, v_rows_.terms(), v_panel_);
    matmul_.multiply(rows_in_use(), head_dim_v(), keys, p_panel_, v_panel_, sums_.data,
                     sums_.stride, later, band_.over_keys());
    add_loose_terms(
        rows_, v_rows_, rows_in_use(), [&](int r, int j) { return scores_.row(r)[j]; }, sums_);
  }

  void write_results() {
    for (int h = 0; h < heads_; ++h) {
      const float* sink = p_.sink ? p_.sink + (head_ + h) * p_.sink_stride : nullptr;
      for (int i = 0; i < queries_; ++i) write_row(h, i, sink);
    }
  }

  void write_row(int h, int i, const float* sink) {
    const int r = h * queries_ + i;
    float largest = row_max_[r], sum = row_sum_[r], factor = 1;
    if (sum == 0) {  // no visible key
      write_empty_row(h, i);
      return;
    }
    if (sink) {
      const float with_sink = std::max(largest, *sink);
      factor = std::exp(largest - with_sink);
      sum = sum * factor + std::exp(*sink - with_sink);
      largest = with_sink;
    }
    rows_.store(sums_.row(r), head_dim_v(), factor / sum, p_.dtype,
                row_at(p_.out, head_ + h, q_row(i)));
    if (p_.lse.defined()) p_.lse.at(batch_, head_ + h, q_row(i)) = largest + std::log(sum);
  }

  void write_empty_row(int h, int i) {
    std::memset(row_at(p_.out, head_ + h, q_row(i)), 0, head_dim_v() * dtype_bytes(p_.dtype));
    if (p_.lse.defined()) p_.lse.at(batch_, head_ + h, q_row(i)) = -kInfinity;
  }
  void write_empty(int begin, int end) {
    for (int h = 0; h < heads_; ++h) {
      for (int i = begin; i < end; ++i) write_empty_row(h, i);
    }
  }

  void* row_at(const Rows& rows, int64_t head, int64_t row) const {
    return element_row(rows, p_.dtype, batch_, head, row);
  }

  const Problem& p_;
  const Plan& plan_;
  const MatmulKernels& matmul_;
  const RowKernels& rows_;
  char *q_panel_, *k_panel_, *v_panel_, *p_panel_;
  FloatTile scores_, sums_;  // [rows][keys], [rows][head_dim_v]
  TileRows q_rows_, p_rows_, k_rows_, v_rows_;
  TileBand band_;
  float *row_max_, *row_sum_, *correction_;

  // Of the task at hand.
  Sequence s_;
  int64_t batch_ = 0, kv_head_ = 0, head_ = 0;
  int heads_ = 0, queries_ = 0;
  bool careful_ = false;
  int32_t query_ = 0;
};

}  // namespace

size_t forward_workspace_bytes(const Problem& p) {
  const Plan plan = make_plan(p);
  Arena arena;
  arena.take<Task>(plan.max_tasks);
  for (int w = 0; w < plan.workers; ++w) Worker(p, plan, arena);
  return arena.used();
}

Status forward(const Problem& p, Workspace workspace, void*) {
  const Plan plan = make_plan(p);
  Arena arena(workspace.data);
  Task* tasks = arena.take<Task>(plan.max_tasks);
  std::vector<Worker> workers;
  workers.reserve(plan.workers);
  for (int w = 0; w < plan.workers; ++w) workers.emplace_back(p, plan, arena);
  const int64_t count = list_tasks(p, plan, tasks);
  run_tasks(plan.workers, count, [&](int worker, int64_t t) { workers[worker].run(tasks[t]); });
  return {};
}

std::string describe_forward(const Problem& p) {
  const Plan plan = make_plan(p);
  return describe(p, plan.workers,
                  std::to_string(plan.heads_per_task * plan.queries_per_task) + " rows (" +
                      std::to_string(plan.heads_per_task) + " heads) x " +
                      std::to_string(plan.max_keys) + " keys");
}

}  // namespace ffpa::cpu
