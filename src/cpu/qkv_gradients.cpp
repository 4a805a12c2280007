// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// dq, dk and dv with each product once. One task: one key tile of one key/value head; it keeps its
// dk and dv and walks the blocks of queries that see its keys. A block's dq is the sum over the
// tasks of its unit (batch, key/value head), added in the order of the key tiles, whichever worker
// comes first: a task waits for its predecessor at each block. Tasks are taken in that order too,
// so the predecessor is done or at work.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>

#include "cpu/backward.h"
#include "cpu/threads.h"

namespace ffpa::cpu {
namespace {

struct Unit {
  int64_t batch, kv_head;
  int64_t work;       // tiles of scores per head
  int32_t key_tiles;  // = tasks
};

struct Task {
  int64_t unit;
  int32_t key_tile;
};

struct Plan {
  int heads_per_block, queries_per_block;
  int chunks;      // blocks side by side that make up all heads of a unit
  int max_blocks;  // of a unit
  int keys_per_tile;
  int max_rows, max_keys;
  int64_t max_units, max_tasks;
  int units_at_once;  // units whose dq sums are in memory
};

// Queries are packed once per key tile; in float32, where packing costs most, tiles are larger.
int keys_per_tile(DType dtype) { return dtype == DType::kFloat32 ? 384 : kGradientKeys; }
static_assert(384 <= kMaxKeysPerTile);

Plan make_plan(const Problem& p, int workers) {
  Plan plan;
  plan.heads_per_block = static_cast<int>(std::min<int64_t>(p.group(), kGradientRows / 16));
  plan.queries_per_block = kGradientRows / plan.heads_per_block / 16 * 16;
  plan.chunks = static_cast<int>((p.group() + plan.heads_per_block - 1) / plan.heads_per_block);
  const int64_t blocks = (p.seqlen_q + plan.queries_per_block - 1) / plan.queries_per_block;
  plan.max_blocks = static_cast<int>(blocks) * plan.chunks;
  plan.max_rows = plan.heads_per_block *
                  static_cast<int>(std::clamp<int64_t>(p.seqlen_q, 1, plan.queries_per_block));
  plan.keys_per_tile = keys_per_tile(p.dtype);
  plan.max_keys = static_cast<int>(std::clamp<int64_t>(p.seqlen_k, 1, plan.keys_per_tile));
  plan.max_units = p.batch * p.heads_kv;
  const int64_t key_tiles =
      p.packed ? p.total_k / plan.keys_per_tile + p.batch
               : p.batch * ((p.seqlen_k + plan.keys_per_tile - 1) / plan.keys_per_tile);
  plan.max_tasks = key_tiles * p.heads_kv;

  // Units side by side keep the workers from waiting for each other; their dq sums should stay
  // below a tenth of the tensors and their gradients.
  Arena dq;
  FloatTile::take(dq, plan.max_rows, static_cast<int>(p.head_dim_qk));
  const int64_t unit_bytes = static_cast<int64_t>(dq.used()) * std::max(plan.max_blocks, 1);
  const int64_t affordable = std::max<int64_t>(2 * tensor_bytes(p) / 10 / unit_bytes, 1);
  plan.units_at_once = static_cast<int>(std::clamp<int64_t>(
      std::min<int64_t>(workers, affordable), 1, std::max<int64_t>(plan.max_units, 1)));
  return plan;
}

// dq sums of the units at work, float32, and who may add to them next.
class QueryGradients {
 public:
  QueryGradients(const Problem& p, const Plan& plan, Arena& arena) : plan_(plan) {
    if (!p.dq.defined()) return;
    const int64_t blocks = int64_t{plan.units_at_once} * plan.max_blocks;
    added_ = arena.take<std::atomic<int32_t>>(blocks);
    ended_ = arena.take<std::atomic<int32_t>>(plan.units_at_once);
    units_ = arena.take<std::atomic<int64_t>>(plan.units_at_once);
    first_ = FloatTile::take(arena, plan.max_rows, static_cast<int>(p.head_dim_qk));
    Arena measure;
    FloatTile::take(measure, plan.max_rows, static_cast<int>(p.head_dim_qk));
    floats_per_block_ = static_cast<int64_t>(measure.used() / sizeof(float));
    arena.take<float>((blocks - 1) * floats_per_block_);
  }
  void reset() {
    if (!added_) return;
    for (int64_t i = 0; i < int64_t{plan_.units_at_once} * plan_.max_blocks; ++i) {
      std::construct_at(added_ + i, 0);
    }
    for (int i = 0; i < plan_.units_at_once; ++i) {
      std::construct_at(ended_ + i, 0);
      std::construct_at(units_ + i, 0);
    }
  }

  // The sums of `block` (numbered within its unit), once the first `order` key tiles are in.
  FloatTile wait(int64_t unit, int block, int32_t order) {
    const int64_t slot = unit % plan_.units_at_once;
    wait_until(units_[slot], unit / plan_.units_at_once);
    wait_until(added_[slot * plan_.max_blocks + block], order);
    return {first_.data + (slot * plan_.max_blocks + block) * floats_per_block_, first_.stride};
  }
  void release(int64_t unit, int block, int32_t order) {
    std::atomic<int32_t>& added = added_[unit % plan_.units_at_once * plan_.max_blocks + block];
    added.store(order + 1, std::memory_order_release);
    added.notify_all();
  }
  // Once per task; the unit's memory goes to the next unit after the last one.
  void end_task(int64_t unit, int32_t tasks) {
    if (!added_) return;
    const int64_t slot = unit % plan_.units_at_once;
    wait_until(units_[slot], unit / plan_.units_at_once);
    if (ended_[slot].fetch_add(1, std::memory_order_acq_rel) + 1 < tasks) return;
    ended_[slot].store(0, std::memory_order_relaxed);
    for (int i = 0; i < plan_.max_blocks; ++i) {
      added_[slot * plan_.max_blocks + i].store(0, std::memory_order_relaxed);
    }
    units_[slot].store(unit / plan_.units_at_once + 1, std::memory_order_release);
    units_[slot].notify_all();
  }

 private:
  template <class T>
  static void wait_until(std::atomic<T>& value, T wanted) {
    for (T now; (now = value.load(std::memory_order_acquire)) != wanted;) value.wait(now);
  }

  const Plan& plan_;
  std::atomic<int32_t>* added_ = nullptr;  // [slot][block]: key tiles that are in
  std::atomic<int32_t>* ended_ = nullptr;  // [slot]: tasks of the unit that have ended
  std::atomic<int64_t>* units_ = nullptr;  // [slot]: units that have ended
  FloatTile first_;
  int64_t floats_per_block_ = 0;
};

class Worker {
 public:
  Worker(const Problem& p, const Plan& plan, const Deltas& deltas, QueryGradients& dq, Arena& arena)
      : p_(p),
        plan_(plan),
        dq_(dq),
        matmul_(matmul_kernels(p.dtype)),
        rows_(row_kernels()),
        tile_(p, deltas, plan.max_rows, plan.max_keys, arena) {
    const int m = plan.max_rows, n = plan.max_keys;
    const int d = static_cast<int>(p.head_dim_qk), dv = static_cast<int>(p.head_dim_v);
    tile_rows_ = TileRows::take(arena, m);
    tile_panel_ = arena.take<char>(std::max(matmul_.panel_bytes(m, n), matmul_.panel_bytes(n, m)));
    term_panel_ = arena.take<char>(std::max(matmul_.panel_bytes(d, m), matmul_.panel_bytes(dv, m)));
    if (p.dq.defined()) k_panel_ = arena.take<char>(matmul_.panel_bytes(d, n));
    if (p.dk.defined()) dk_ = FloatTile::take(arena, n, d);
    if (p.dv.defined()) dv_ = FloatTile::take(arena, n, dv);
  }

  void run(int64_t unit_number, const Unit& unit, int32_t key_tile) {
    unit_ = unit_number;
    kv_head_ = unit.kv_head;
    key_tile_ = key_tile;
    tile_.set_sequence(unit.batch, unit.kv_head);
    const Sequence& s = tile_.sequence();
    const int32_t key = key_tile * plan_.keys_per_tile;
    const int rows = std::min(plan_.keys_per_tile, s.rows_k - key);
    const int keys = std::clamp(s.len_k - key, 0, rows);
    const TileRange blocks =
        query_tiles(p_.visibility(s), key, plan_.keys_per_tile, plan_.queries_per_block);
    if (blocks.count() > 0) {
      tile_.set_keys(key, keys);
      if (p_.dq.defined()) {
        matmul_.pack(Side::kRight, RowsAlong::kSummed, tile_.k_rows().terms(), k_panel_);
      }
    }
    later_ = false;
    for (int chunk = 0; chunk < plan_.chunks; ++chunk) {
      for (int32_t b = blocks.begin; b < blocks.end; ++b) add_block(chunk, b, blocks.full(b));
    }
    write_rows(p_.dk, dk_, p_.head_dim_qk, key, later_ ? keys : 0, rows);
    write_rows(p_.dv, dv_, p_.head_dim_v, key, later_ ? keys : 0, rows);
    dq_.end_task(unit_number, unit.key_tiles);
  }

 private:
  void add_block(int chunk, int32_t b, bool full) {
    const Sequence& s = tile_.sequence();
    QueryBlock block;
    block.head = kv_head_ * p_.group() + chunk * plan_.heads_per_block;
    block.heads = static_cast<int>(
        std::min<int64_t>(plan_.heads_per_block, (kv_head_ + 1) * p_.group() - block.head));
    block.query = b * plan_.queries_per_block;
    block.queries = std::min(plan_.queries_per_block, s.len_q - block.query);
    tile_.set_queries(block);
    tile_.compute(full, GradientOf::kProducts, p_.dq.defined() || p_.dk.defined());
    if (p_.dv.defined()) add_key_side(tile_.probabilities(), tile_.dout_rows(), dv_);
    if (p_.dk.defined()) add_key_side(tile_.gradients(), tile_.q_rows(), dk_);
    later_ = true;
    if (p_.dq.defined()) add_query_side(chunk, b);
  }

  // sums[key] += sum over rows of factors[row][key] * terms[row].
  void add_key_side(const FloatTile& factors, const TileRows& terms, const FloatTile& sums) {
    const int rows = tile_.block().rows(), n = tile_.keys();
    tile_rows_.begin(DType::kFloat32, n);
    tile_rows_.append(factors, rows);
    matmul_.pack(Side::kLeft, RowsAlong::kSummed, tile_rows_.all(), tile_panel_);
    matmul_.pack(Side::kRight, RowsAlong::kSummed, terms.terms(), term_panel_);
    matmul_.multiply(n, terms.columns(), rows, tile_panel_, term_panel_, sums.data, sums.stride,
                     later_, tile_.band().over_rows());
    add_loose_terms(rows_, terms, n, [&](int key, int row) { return factors.row(row)[key]; }, sums);
  }

  // dq[row] += sum over keys of dS[row][key] * k[key].
  void add_query_side(int chunk, int32_t b) {
    const QueryBlock& block = tile_.block();
    const FloatTile& factors = tile_.gradients();
    tile_rows_.begin(DType::kFloat32, tile_.keys());
    tile_rows_.append(factors, block.rows());
    matmul_.pack(Side::kLeft, RowsAlong::kKept, tile_rows_.all(), tile_panel_);

    const TileRange visited =
        key_tiles(p_.visibility(tile_.sequence()), block.query, block.queries, plan_.keys_per_tile);
    const int32_t order = key_tile_ - visited.begin;
    const int number = b * plan_.chunks + chunk;
    const FloatTile sums = dq_.wait(unit_, number, order);
    matmul_.multiply(block.rows(), tile_.k_rows().columns(), tile_.keys(), tile_panel_, k_panel_,
                     sums.data, sums.stride, order > 0, tile_.band().over_keys());
    add_loose_terms(
        rows_, tile_.k_rows(), block.rows(),
        [&](int row, int key) { return factors.row(row)[key]; }, sums);
    if (order + 1 == visited.count()) write_query_gradients(block, sums);
    dq_.release(unit_, number, order);
  }

  void write_query_gradients(const QueryBlock& block, const FloatTile& sums) {
    for (int h = 0; h < block.heads; ++h) {
      for (int i = 0; i < block.queries; ++i) {
        const int64_t row = tile_.sequence().q_begin + block.query + i;
        rows_.store(sums.row(h * block.queries + i), static_cast<int>(p_.head_dim_qk), 1.f,
                    p_.dtype, tile_.row_at(p_.dq, block.head + h, row));
      }
    }
  }

  // The first `keys` of `rows` from the sums, zeros below.
  void write_rows(const Rows& to, const FloatTile& sums, int64_t columns, int32_t key, int keys,
                  int rows) {
    if (!to.defined()) return;
    for (int j = 0; j < rows; ++j) {
      void* row = tile_.row_at(to, kv_head_, tile_.sequence().k_begin + key + j);
      if (j < keys) {
        rows_.store(sums.row(j), static_cast<int>(columns), 1.f, p_.dtype, row);
      } else {
        std::memset(row, 0, columns * dtype_bytes(p_.dtype));
      }
    }
  }

  const Problem& p_;
  const Plan& plan_;
  QueryGradients& dq_;
  const MatmulKernels& matmul_;
  const RowKernels& rows_;
  GradientTile tile_;
  TileRows tile_rows_;
  char *tile_panel_ = nullptr, *term_panel_ = nullptr, *k_panel_ = nullptr;
  FloatTile dk_, dv_;

  // Of the task at hand.
  int64_t unit_ = 0, kv_head_ = 0;
  int32_t key_tile_ = 0;
  bool later_ = false;  // dk_ and dv_ hold sums
};

// Most work first.
void list_units(const Problem& p, const Plan& plan, Unit* units) {
  Unit* unit = units;
  for (int64_t b = 0; b < p.batch; ++b) {
    const Sequence s = p.sequence(b);
    const int32_t tiles = ceil_div(s.rows_k, plan.keys_per_tile);
    int64_t work = tiles;
    for (int32_t t = 0; t < tiles; ++t) {
      work += query_tiles(p.visibility(s), t * plan.keys_per_tile, plan.keys_per_tile,
                          plan.queries_per_block)
                  .count();
    }
    for (int64_t kv = 0; kv < p.heads_kv; ++kv) *unit++ = {b, kv, work, tiles};
  }
  std::sort(units, unit, [](const Unit& x, const Unit& y) {
    if (x.work != y.work) return x.work > y.work;
    return x.batch != y.batch ? x.batch < y.batch : x.kv_head < y.kv_head;
  });
}

// Units in groups of units_at_once; within a group all first key tiles, all second ones, ...
int64_t list_tasks(const Plan& plan, const Unit* units, int64_t unit_count, Task* tasks) {
  int64_t count = 0;
  for (int64_t first = 0; first < unit_count; first += plan.units_at_once) {
    const int64_t end = std::min(first + plan.units_at_once, unit_count);
    bool more = true;
    for (int32_t tile = 0; more; ++tile) {
      more = false;
      for (int64_t u = first; u < end; ++u) {
        if (tile >= units[u].key_tiles) continue;
        tasks[count++] = {u, tile};
        more = true;
      }
    }
  }
  return count;
}

// What a call needs, in the workspace.
struct Scratch {
  Unit* units;
  Task* tasks;
  QueryGradients dq;
  Worker* workers;

  Scratch(const Problem& p, const Plan& plan, const Deltas& deltas, int count, Arena& arena)
      : units(arena.take<Unit>(plan.max_units)),
        tasks(arena.take<Task>(plan.max_tasks)),
        dq(p, plan, arena),
        workers(take_workers<Worker>(arena, count,
                                     [&](Arena& a) { return Worker(p, plan, deltas, dq, a); })) {}
};

}  // namespace

size_t qkv_gradient_bytes(const Problem& p, int workers) {
  const Plan plan = make_plan(p, workers);
  Arena arena;
  Scratch(p, plan, {}, workers, arena);
  return arena.used();
}

void compute_qkv_gradients(const Problem& p, const Deltas& deltas, int workers, void* scratch) {
  const Plan plan = make_plan(p, workers);
  Arena arena(scratch);
  Scratch s(p, plan, deltas, workers, arena);
  list_units(p, plan, s.units);
  const int64_t count = list_tasks(plan, s.units, plan.max_units, s.tasks);
  s.dq.reset();
  run_tasks(workers, count, [&](int worker, int64_t t) {
    const Task& task = s.tasks[t];
    s.workers[worker].run(task.unit, s.units[task.unit], task.key_tile);
  });
}

std::string describe_qkv_gradients(const Problem& p, int workers) {
  const Plan plan = make_plan(p, workers);
  return describe(p, workers,
                  std::to_string(plan.max_rows) + " rows (" + std::to_string(plan.heads_per_block) +
                      " heads) x " + std::to_string(plan.max_keys) + " keys");
}

}  // namespace ffpa::cpu
