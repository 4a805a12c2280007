// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "cpu/forward_plan.h"

#include <algorithm>

#include "cpu/row_kernels.h"
#include "cpu/threads.h"
#include "cpu/tile.h"

namespace ffpa::cpu {
namespace {

static_assert(kKeysPerTile <= kMaxKeysPerTile);

int64_t ceil_div(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }

int64_t key_tiles_of(const Problem& p, int64_t unit) {
  return ceil_div(p.sequence(unit / p.heads_kv).len_k, kKeysPerTile);
}

// Packed keys and values may take an eighth of the tensors, and a round must keep all workers busy.
int64_t shared_tiles(const Problem& p, const ForwardPlan& plan) {
  const int64_t unit_tiles = std::max<int64_t>(ceil_div(p.seqlen_k, kKeysPerTile), 1);
  const int64_t unit_tasks =
      ceil_div(p.seqlen_q, plan.queries_per_task) * ceil_div(p.group(), plan.heads_per_task);
  const int64_t units = p.batch * p.heads_kv;
  const int64_t affordable = tensor_bytes(p) / 8 / (unit_tiles * PanelSizes(p).tile());
  const int64_t at_once = std::min(affordable, units);
  const bool busy = at_once == units || at_once * unit_tasks >= 4 * plan.workers;
  return unit_tasks > 1 && busy ? at_once * unit_tiles : 0;
}

}  // namespace

PanelSizes::PanelSizes(const Problem& p) {
  const MatmulKernels& matmul = matmul_kernels(p.dtype);
  const auto bytes = [&](size_t n) { return static_cast<int64_t>((n + 63) / 64 * 64); };
  const int n = static_cast<int>(std::clamp<int64_t>(p.seqlen_k, 1, kKeysPerTile));
  keys = bytes(matmul.panel_bytes(n, static_cast<int>(p.head_dim_qk)));
  values = bytes(matmul.panel_bytes(static_cast<int>(p.head_dim_v), n));
}

ForwardPlan make_forward_plan(const Problem& p) {
  ForwardPlan plan;
  const int seqlen_q = static_cast<int>(std::clamp<int64_t>(p.seqlen_q, 1, kMaxRows));
  const int heads = std::clamp(kMaxRows / seqlen_q, 16, kMaxRows);
  plan.heads_per_task = static_cast<int>(std::min<int64_t>(p.group(), heads));
  const int queries = kMaxRows / plan.heads_per_task;
  plan.queries_per_task = std::min(queries >= 16 ? queries / 16 * 16 : queries, seqlen_q);
  plan.max_keys = static_cast<int>(std::clamp<int64_t>(p.seqlen_k, 1, kKeysPerTile));
  const int64_t tiles = p.packed ? p.total_q / plan.queries_per_task + p.batch
                                 : p.batch * ceil_div(p.seqlen_q, plan.queries_per_task);
  plan.max_tasks = tiles * p.heads_kv * ceil_div(p.group(), plan.heads_per_task);
  const double flops = 2.0 * static_cast<double>(p.total_q) * static_cast<double>(p.heads_q) *
                       static_cast<double>(p.seqlen_k) *
                       static_cast<double>(p.head_dim_qk + p.head_dim_v);
  plan.workers = worker_count(p, flops);
  plan.shared_tiles = shared_tiles(p, plan);
  return plan;
}

int64_t round_end(const Problem& p, const ForwardPlan& plan, int64_t first) {
  const int64_t units = p.batch * p.heads_kv;
  if (plan.shared_tiles == 0) return units;
  int64_t tiles = 0, end = first;
  while (end < units && (tiles += key_tiles_of(p, end)) <= plan.shared_tiles) ++end;
  return end;
}

int64_t list_pack_tasks(const Problem& p, int64_t first, int64_t end, char* panels,
                        PackTask* tasks) {
  const int64_t bytes = PanelSizes(p).tile();
  int64_t count = 0;
  for (int64_t unit = first; unit < end; ++unit) {
    const int64_t tiles = key_tiles_of(p, unit);
    for (int64_t t = 0; t < tiles; ++t, ++count) {
      tasks[count] = {unit / p.heads_kv, unit % p.heads_kv, static_cast<int32_t>(t),
                      panels + count * bytes};
    }
  }
  return count;
}

int64_t list_tasks(const Problem& p, const ForwardPlan& plan, int64_t first, int64_t end,
                   const char* panels, ForwardTask* tasks) {
  const int64_t panel_bytes = PanelSizes(p).tile();
  int64_t count = 0;
  for (int64_t unit = first; unit < end; ++unit) {
    const int64_t b = unit / p.heads_kv, kv = unit % p.heads_kv;
    const Sequence s = p.sequence(b);
    for (int32_t query = 0; query < s.rows_q; query += plan.queries_per_task) {
      const TileRange tiles =
          key_tiles(p.visibility(s), query, plan.queries_per_task, kKeysPerTile);
      for (int64_t g = 0; g < p.group(); g += plan.heads_per_task) {
        const auto head = static_cast<int32_t>(kv * p.group() + g);
        tasks[count++] = {b, head, query, tiles.count(), panels};
      }
    }
    if (panels) panels += key_tiles_of(p, unit) * panel_bytes;
  }
  // Longest first, so that no long task is the last one.
  std::sort(tasks, tasks + count, [](const ForwardTask& x, const ForwardTask& y) {
    if (x.key_tiles != y.key_tiles) return x.key_tiles > y.key_tiles;
    if (x.batch != y.batch) return x.batch < y.batch;
    return x.head != y.head ? x.head < y.head : x.query < y.query;
  });
  return count;
}

}  // namespace ffpa::cpu
