// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// A task walks the key tiles that its queries see and keeps a running softmax.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/forward_plan.h"
#include "cpu/launch.h"
#include "cpu/threads.h"
#include "cpu/tile.h"

namespace ffpa::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Worker {
 public:
  Worker(const Problem& p, const ForwardPlan& plan, Arena& arena)
      : p_(p), plan_(plan), sizes_(p), matmul_(matmul_kernels(p.dtype)), rows_(row_kernels()) {
    const int m = plan.max_rows(), n = plan.max_keys;
    const int d = static_cast<int>(p.head_dim_qk), dv = static_cast<int>(p.head_dim_v);
    q_panel_ = arena.take<char>(matmul_.panel_bytes(m, d));
    if (plan.shared_tiles == 0) k_panel_ = arena.take<char>(sizes_.keys);
    v_panel_ = arena.take<char>(sizes_.values);
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

  void pack(const PackTask& task) {
    set_unit(task.batch, task.kv_head);
    const int32_t key = task.key_tile * kKeysPerTile;
    list_keys(key);
    matmul_.pack(Side::kRight, RowsAlong::kKept, k_rows_.all(), task.panel);
    list_values(key);
    matmul_.pack(Side::kRight, RowsAlong::kSummed, v_rows_.all(), task.panel + sizes_.keys);
  }

  void run(const ForwardTask& task) {
    set_unit(task.batch, p_.kv_head(task.head));
    panels_ = task.panels;
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
  void set_unit(int64_t batch, int64_t kv_head) {
    s_ = p_.sequence(batch);
    batch_ = batch;
    kv_head_ = kv_head;
  }

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
    const int keys = keys_from(key);
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

  int keys_from(int32_t key) const { return std::min(kKeysPerTile, s_.len_k - key); }

  void list_keys(int32_t key) {
    k_rows_.begin(p_.dtype, head_dim());
    for (int j = 0; j < keys_from(key); ++j) {
      k_rows_.append(row_at(p_.k, kv_head_, s_.k_begin + key + j));
    }
  }
  void list_values(int32_t key) {
    v_rows_.begin(p_.dtype, head_dim_v());
    for (int j = 0; j < keys_from(key); ++j) {
      v_rows_.append(row_at(p_.v, kv_head_, s_.k_begin + key + j));
    }
  }

  const char* shared_tile(int32_t key) const {
    return panels_ + key / kKeysPerTile * sizes_.tile();
  }

  const char* key_panel(int32_t key) {
    if (panels_) return shared_tile(key);
    matmul_.pack(Side::kRight, RowsAlong::kKept, k_rows_.all(), k_panel_);
    return k_panel_;
  }

  const char* value_panel(int32_t key) {
    if (panels_ && !careful_) return shared_tile(key) + sizes_.keys;
    matmul_.pack(Side::kRight, RowsAlong::kSummed, v_rows_.terms(), v_panel_);
    return v_panel_;
  }

  void compute_scores(int32_t key, int keys) {
    list_keys(key);
    matmul_.multiply(rows_in_use(), keys, head_dim(), q_panel_, key_panel(key), scores_.data,
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
    list_values(key);
    if (careful_) v_rows_.find_loose(rows_);
    matmul_.multiply(rows_in_use(), head_dim_v(), keys, p_panel_, value_panel(key), sums_.data,
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
  const ForwardPlan& plan_;
  const PanelSizes sizes_;
  const MatmulKernels& matmul_;
  const RowKernels& rows_;
  char *q_panel_, *k_panel_ = nullptr, *v_panel_, *p_panel_;
  FloatTile scores_, sums_;  // [rows][keys], [rows][head_dim_v]
  TileRows q_rows_, p_rows_, k_rows_, v_rows_;
  TileBand band_;
  float *row_max_, *row_sum_, *correction_;

  // Of the task at hand.
  const char* panels_ = nullptr;
  Sequence s_;
  int64_t batch_ = 0, kv_head_ = 0, head_ = 0;
  int heads_ = 0, queries_ = 0;
  bool careful_ = false;
  int32_t query_ = 0;
};

// What a call needs, in the workspace.
struct Scratch {
  ForwardTask* tasks;
  PackTask* pack_tasks;
  char* panels;
  Worker* workers;

  Scratch(const Problem& p, const ForwardPlan& plan, Arena& arena)
      : tasks(arena.take<ForwardTask>(plan.max_tasks)),
        pack_tasks(arena.take<PackTask>(plan.shared_tiles)),
        panels(arena.take<char>(plan.shared_tiles * PanelSizes(p).tile())),
        workers(take_workers<Worker>(arena, plan.workers,
                                     [&](Arena& a) { return Worker(p, plan, a); })) {}
};

size_t bytes_of(const Problem& p, const ForwardPlan& plan) {
  Arena arena;
  Scratch(p, plan, arena);
  return arena.used();
}

// Under a limit, sharing goes first, then workers.
ForwardPlan plan_within_limit(const Problem& p) {
  ForwardPlan plan = make_forward_plan(p);
  const auto fits = [&] {
    return p.workspace_limit < 0 || bytes_of(p, plan) <= static_cast<size_t>(p.workspace_limit);
  };
  if (!fits()) plan.shared_tiles = 0;
  while (plan.workers > 1 && !fits()) --plan.workers;
  return plan;
}

}  // namespace

size_t forward_workspace_bytes(const Problem& p) { return bytes_of(p, plan_within_limit(p)); }

Status forward(const Problem& p, Workspace workspace, void*) {
  const ForwardPlan plan = plan_within_limit(p);
  Arena arena(workspace.data);
  const Scratch s(p, plan, arena);
  const int64_t units = p.batch * p.heads_kv;
  for (int64_t first = 0, end; first < units; first = end) {
    end = round_end(p, plan, first);
    const char* panels = plan.shared_tiles > 0 ? s.panels : nullptr;
    if (panels) {
      const int64_t count = list_pack_tasks(p, first, end, s.panels, s.pack_tasks);
      run_tasks(plan.workers, count,
                [&](int worker, int64_t t) { s.workers[worker].pack(s.pack_tasks[t]); });
    }
    const int64_t count = list_tasks(p, plan, first, end, panels, s.tasks);
    run_tasks(plan.workers, count,
              [&](int worker, int64_t t) { s.workers[worker].run(s.tasks[t]); });
  }
  return {};
}

std::string describe_forward(const Problem& p) {
  const ForwardPlan plan = plan_within_limit(p);
  return describe(p, plan.workers,
                  std::to_string(plan.max_rows()) + " rows (" +
                      std::to_string(plan.heads_per_task) + " heads) x " +
                      std::to_string(plan.max_keys) + " keys" +
                      (plan.shared_tiles > 0 ? ", shared keys and values" : ""));
}

}  // namespace ffpa::cpu
