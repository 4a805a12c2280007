// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// dmask. One task: one tile of dmask. It sums dS over everything that the mask broadcasts, always
// in the same order. The two products that give dS are made again: masks with a gradient are rare,
// and nothing of size Nq x Nk has to be kept.
#include <cstring>

#include "cpu/backward.h"
#include "cpu/threads.h"

namespace ffpa::cpu {
namespace {

constexpr int kRows = 128;

// How the mask's gradient runs along one dimension: `count` entries, in tiles of `tile`; or summed.
struct Dimension {
  int64_t count;
  int tile;
  bool summed;

  int64_t tiles() const { return (count + tile - 1) / tile; }
  int64_t tasks() const { return summed ? 1 : tiles(); }
  // What a task adds up.
  Range range(int64_t task) const {
    const auto t = static_cast<int32_t>(task);
    return summed ? Range{0, static_cast<int32_t>(tiles())} : Range{t, t + 1};
  }
};

struct Plan {
  Dimension batch, head, row, column;
  int64_t tasks;
};

Plan make_plan(const Problem& p) {
  Plan plan;
  plan.batch = {p.batch, 1, p.dmask.batch_stride == 0};
  plan.head = {p.heads_q, 1, p.dmask.head_stride == 0};
  plan.row = {p.seqlen_q, kRows, p.dmask.row_stride == 0};
  plan.column = {p.seqlen_k, kGradientKeys, p.dmask.column_stride == 0};
  plan.tasks = plan.batch.tasks() * plan.head.tasks() * plan.row.tasks() * plan.column.tasks();
  return plan;
}

int max_rows(const Problem& p) {
  return static_cast<int>(std::clamp<int64_t>(p.seqlen_q, 1, kRows));
}
int max_keys(const Problem& p) {
  return static_cast<int>(std::clamp<int64_t>(p.seqlen_k, 1, kGradientKeys));
}

class Worker {
 public:
  Worker(const Problem& p, const Plan& plan, const Deltas& deltas, Arena& arena)
      : p_(p),
        plan_(plan),
        rows_(row_kernels()),
        tile_(p, deltas, max_rows(p), max_keys(p), arena),
        sums_(FloatTile::take(arena, max_rows(p), max_keys(p))),
        converted_(arena.take<float>(max_keys(p))) {}

  void run(int64_t task) {
    const int64_t column = task % plan_.column.tasks();
    task /= plan_.column.tasks();
    const int64_t row = task % plan_.row.tasks();
    task /= plan_.row.tasks();
    const int64_t head = task % plan_.head.tasks(), batch = task / plan_.head.tasks();

    std::fill(sums_.data, sums_.row(max_rows(p_)), 0.f);
    const Range batches = plan_.batch.range(batch), heads = plan_.head.range(head);
    for (int32_t b = batches.begin; b < batches.end; ++b) {
      for (int32_t h = heads.begin; h < heads.end; ++h) {
        tile_.set_sequence(b, p_.kv_head(h));
        const Range columns = plan_.column.range(column);
        for (int32_t c = columns.begin; c < columns.end; ++c) {
          add_keys(h, c * kGradientKeys, plan_.row.range(row));
        }
      }
    }
    write(batch, head, plan_.row.summed ? 0 : row * kRows,
          plan_.column.summed ? 0 : column * kGradientKeys);
  }

 private:
  void add_keys(int64_t head, int32_t key, Range row_tiles) {
    const Sequence& s = tile_.sequence();
    const TileRange seen = query_tiles(p_.visibility(s), key, kGradientKeys, kRows);
    row_tiles = {max_of(row_tiles.begin, seen.begin), min_of(row_tiles.end, seen.end)};
    if (row_tiles.empty()) return;
    tile_.set_keys(key, std::min(kGradientKeys, s.len_k - key));
    for (int32_t t = row_tiles.begin; t < row_tiles.end; ++t) {
      const int32_t query = t * kRows;
      const int queries = std::min(kRows, s.len_q - query);
      tile_.set_queries({head, 1, query, queries});
      tile_.compute(seen.full(t), GradientOf::kMask, true);
      for (int r = 0; r < queries; ++r) {
        rows_.add(tile_.gradients().row(r), tile_.keys(), sums_.row(plan_.row.summed ? 0 : r));
      }
    }
  }

  void write(int64_t batch, int64_t head, int64_t row, int64_t column) {
    const int keys = max_keys(p_);
    const int64_t rows = plan_.row.summed ? 1 : std::min<int64_t>(kRows, p_.seqlen_q - row);
    const int64_t columns =
        plan_.column.summed ? 1 : std::min<int64_t>(kGradientKeys, p_.seqlen_k - column);
    const int bytes = dtype_bytes(p_.dmask.dtype);
    for (int64_t r = 0; r < rows; ++r) {
      float* sums = sums_.row(r);
      if (plan_.column.summed) {
        for (int j = 1; j < keys; ++j) sums[0] += sums[j];
      }
      rows_.store(sums, static_cast<int>(columns), 1.f, p_.dmask.dtype, converted_);
      const char* from = reinterpret_cast<const char*>(converted_);
      char* to =
          static_cast<char*>(p_.dmask.data) + p_.dmask.offset(batch, head, row + r, column) * bytes;
      for (int64_t j = 0; j < columns; ++j) {
        std::memcpy(to + j * p_.dmask.column_stride * bytes, from + j * bytes, bytes);
      }
    }
  }

  const Problem& p_;
  const Plan& plan_;
  const RowKernels& rows_;
  GradientTile tile_;
  FloatTile sums_;
  float* converted_;
};

Worker* take_pool(const Problem& p, const Plan& plan, const Deltas& deltas, int workers,
                  Arena& arena) {
  return take_workers<Worker>(arena, workers, [&](Arena& a) { return Worker(p, plan, deltas, a); });
}

}  // namespace

size_t mask_gradient_bytes(const Problem& p, int workers) {
  if (!p.dmask.defined()) return 0;
  const Plan plan = make_plan(p);
  Arena arena;
  take_pool(p, plan, {}, workers, arena);
  return arena.used();
}

void compute_mask_gradient(const Problem& p, const Deltas& deltas, int workers, void* scratch) {
  const Plan plan = make_plan(p);
  Arena arena(scratch);
  Worker* pool = take_pool(p, plan, deltas, workers, arena);
  run_tasks(workers, plan.tasks, [&](int worker, int64_t t) { pool[worker].run(t); });
}

}  // namespace ffpa::cpu
