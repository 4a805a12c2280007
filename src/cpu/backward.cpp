// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Backward. Two ways through the same tiles, with the same sums in the same order:
//   whole:  a task owns a key/value head of a sequence and keeps dQ of one head (dK and dV of all
//           keys where heads share them) in float32: five products per tile.
//   split:  a task owns a key tile (dK, dV: four products) or a query tile (dQ: three). For few
//   heads
//           on many threads, for long sequences, and where only some gradients are wanted.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/backward_tile.h"
#include "cpu/dmask.h"
#include "cpu/launch.h"
#include "cpu/threads.h"
#include "cpu/work.h"

namespace ffpa::cpu {
namespace {

constexpr int kBlock = kBackwardBlock;
constexpr float kNone = -std::numeric_limits<float>::infinity();

int columns_qk(const Problem& p) { return sums_stride(p.head_dim_qk); }
int columns_v(const Problem& p) { return sums_stride(p.head_dim_v); }
bool wants_dkdv(const Problem& p) { return p.dk.defined() || p.dv.defined(); }

// ---- layout -------------------------------------------------------------------------------------

// float32 sums that a task of the whole form keeps.
struct Sums {
  float *dq, *dk, *dv;
  int64_t rows_q, rows_k;

  Sums(const Problem& p, Carver& c) {
    rows_q = round_up(static_cast<int>(p.seqlen_q), 16);
    rows_k = p.group() > 1 ? p.seqlen_k : std::min<int64_t>(p.seqlen_k, kBlock);
    rows_k = round_up(static_cast<int>(rows_k), 16);
    dq = c.take<float>(rows_q * columns_qk(p));
    dk = c.take<float>(rows_k * columns_qk(p));
    dv = c.take<float>(rows_k * columns_v(p));
  }
};

// The same of the split form: one tile.
struct TileSums {
  float *first, *second;

  TileSums(const Problem& p, Carver& c) {
    first = c.take<float>(int64_t{kBlock} * columns_qk(p));
    second = c.take<float>(int64_t{kBlock} * columns_v(p));
  }
};

struct Layout {
  bool whole;
  int threads;
  int64_t query_tiles, key_tiles;  // upper bounds
  size_t delta_bytes, list_bytes, slot_bytes;
  size_t total() const { return delta_bytes + list_bytes + threads * slot_bytes; }
};

// Bytes of the gradients and of what the backward reads: what its workspace is measured against.
int64_t tensor_bytes(const Problem& p) {
  const int64_t rows = p.total_q * p.heads_q + p.total_k * p.heads_kv;
  return 2 * rows * (p.head_dim_qk + p.head_dim_v) * dtype_bytes(p.dtype);
}

template <class E>
Layout layout(const Problem& p) {
  Layout l;
  l.query_tiles = max_work_tiles(p, TileOf::kQueries, kBlock);
  l.key_tiles = max_work_tiles(p, TileOf::kKeys, kBlock);
  const int threads = thread_count(p);
  const int64_t units = p.batch * p.heads_kv;
  Carver sums(nullptr);
  Sums(p, sums);
  const int64_t limit = p.workspace_limit >= 0 ? p.workspace_limit : tensor_bytes(p) / 8;
  l.whole = p.dq.defined() && wants_dkdv(p) && units >= threads &&
            static_cast<int64_t>(sums.used()) * threads <= limit;

  Carver delta(nullptr), list(nullptr), slot(nullptr);
  delta.take<float>(p.heads_q * p.total_q);
  list.take<WorkTile>(std::max(l.query_tiles, l.key_tiles));
  BackwardBuffers<E>(p, slot);
  if (l.whole) {
    Sums(p, slot);
  } else {
    TileSums(p, slot);
  }
  const int64_t dmask = dmask_tasks(p);
  if (dmask > 0) slot.take<float>(kBlock * kBlock);
  const int64_t most_tasks =
      l.whole ? units : std::max(l.query_tiles * p.heads_q, l.key_tiles * p.heads_kv);
  l.threads = static_cast<int>(std::min<int64_t>(threads, std::max(most_tasks, dmask)));
  l.delta_bytes = delta.used();
  l.list_bytes = list.used();
  l.slot_bytes = slot.used();
  return l;
}

// ---- delta and the sink's gradient
// ----------------------------------------------------------------

// delta = rowsum(dout * out) - dlse; 0 for rows without keys. [Hq][total_q].
void prepare_row(const Problem& p, int64_t batch, int64_t row, int64_t token, float* delta) {
  float o[1024], dout[1024];
  const int dv = static_cast<int>(p.head_dim_v);
  for (int64_t h = 0; h < p.heads_q; ++h) {
    float& to = delta[h * p.total_q + token];
    to = 0;
    if (p.lse.at(batch, h, row) == kNone) continue;
    load_row(dv, p.dtype, rows_of(p.out, p.dtype, batch, h, row, 1, dv).data, o);
    load_row(dv, p.dtype, rows_of(p.dout, p.dtype, batch, h, row, 1, dv).data, dout);
    to = dot_row(dv, o, dout);
    if (p.dlse.defined()) to -= p.dlse.at(batch, h, row);
  }
}

void prepare(const Problem& p, const WorkTile& tile, float* delta) {
  const Sequence s = p.sequence(tile.batch);
  const int32_t end = std::min(tile.first + kBlock, s.len_q);
  for (int32_t i = tile.first; i < end; ++i) {
    const int64_t row = s.q_begin + i;
    prepare_row(p, tile.batch, row, p.packed ? row : tile.batch * p.seqlen_q + i, delta);
  }
}

void sink_gradient(const Problem& p, int64_t head, const float* delta) {
  const double sink = p.sink[head * p.sink_stride];
  double sum = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    const Sequence s = p.sequence(b);
    for (int32_t i = 0; i < s.len_q; ++i) {
      const int64_t row = s.q_begin + i, token = p.packed ? row : b * p.seqlen_q + i;
      const float lse = p.lse.at(b, head, row);
      if (lse != kNone) sum -= std::exp(sink - lse) * delta[head * p.total_q + token];
    }
  }
  p.dsink[head * p.dsink_stride] = static_cast<float>(sum);
}

// ---- results
// --------------------------------------------------------------------------------------

// Rows [first, first + count) of a gradient from sums; those from `valid` on are zero.
void store_rows(const Problem& p, const Rows& to, int64_t batch, int64_t head, int64_t first,
                int count, int valid, int columns, const float* sums, int64_t ld) {
  if (!to.defined()) return;
  const float zeros[1024] = {};
  for (int r = 0; r < count; ++r) {
    const Matrix row = rows_of(to, p.dtype, batch, head, first + r, 1, columns);
    store_row(columns, r < valid ? sums + r * ld : zeros, p.dtype, const_cast<char*>(row.data));
  }
}

// ---- whole
// ----------------------------------------------------------------------------------------

template <class E>
class WholeTask {
 public:
  WholeTask(const Problem& p, const BackwardBuffers<E>& buffers, const Sums& sums,
            const float* delta, int64_t batch, int64_t kv_head)
      : p_(p),
        sums_(sums),
        s_(p.sequence(batch)),
        batch_(batch),
        kv_head_(kv_head),
        tile_(p, buffers, delta, {true, true}) {}

  void run() {
    const bool shared = p_.group() > 1;
    if (shared) clear_keys(s_.len_k);
    for (int64_t h = kv_head_ * p_.group(); h < (kv_head_ + 1) * p_.group(); ++h) {
      const Scores scores(p_, s_, batch_, h);
      std::fill_n(sums_.dq, int64_t{round_up(s_.len_q, 16)} * columns_qk(p_), 0.f);
      for (int32_t j0 = 0; j0 < s_.len_k; j0 += kBlock) {
        if (!shared) clear_keys(std::min(kBlock, s_.len_k - j0));
        visit_queries(scores, h, j0, shared ? j0 : 0);
        if (!shared) store_keys(j0, std::min(kBlock, s_.len_k - j0), s_.len_k - j0);
      }
      store_rows(p_, p_.dq, batch_, h, s_.q_begin, s_.rows_q, s_.len_q,
                 static_cast<int>(p_.head_dim_qk), sums_.dq, columns_qk(p_));
    }
    if (shared) store_keys(0, s_.len_k, s_.len_k);
    store_keys(s_.len_k, s_.rows_k - s_.len_k, 0);
  }

 private:
  void clear_keys(int rows) {
    std::fill_n(sums_.dk, int64_t{round_up(rows, 16)} * columns_qk(p_), 0.f);
    std::fill_n(sums_.dv, int64_t{round_up(rows, 16)} * columns_v(p_), 0.f);
  }

  void visit_queries(const Scores& scores, int64_t head, int32_t j0, int32_t sum_row) {
    const TileRange tiles = query_tiles(scores.visibility(), j0, kBlock, kBlock);
    if (tiles.count() == 0) return;
    tile_.load_keys(s_, batch_, kv_head_, j0);
    for (int32_t t = tiles.begin; t < tiles.end; ++t) {
      tile_.load_queries(s_, scores, batch_, head, t * kBlock);
      if (!tile_.compute(tiles.full(t), nullptr)) continue;
      tile_.add_dq(sums_.dq + int64_t{t} * kBlock * columns_qk(p_), columns_qk(p_));
      if (p_.dk.defined()) {
        tile_.add_dk(sums_.dk + int64_t{sum_row} * columns_qk(p_), columns_qk(p_));
      }
      if (p_.dv.defined()) {
        tile_.add_dv(sums_.dv + int64_t{sum_row} * columns_v(p_), columns_v(p_));
      }
    }
  }

  void store_keys(int32_t first, int count, int valid) {
    const int64_t row = s_.k_begin + first;
    store_rows(p_, p_.dk, batch_, kv_head_, row, count, valid, static_cast<int>(p_.head_dim_qk),
               sums_.dk, columns_qk(p_));
    store_rows(p_, p_.dv, batch_, kv_head_, row, count, valid, static_cast<int>(p_.head_dim_v),
               sums_.dv, columns_v(p_));
  }

  const Problem& p_;
  const Sums& sums_;
  const Sequence s_;
  const int64_t batch_, kv_head_;
  BackwardTile<E> tile_;
};

// ---- split
// ----------------------------------------------------------------------------------------

template <class E>
void split_keys(const Problem& p, const BackwardBuffers<E>& buffers, const TileSums& sums,
                const float* delta, const WorkTile& work, int64_t kv_head) {
  const Sequence s = p.sequence(work.batch);
  const int count = std::min(kBlock, s.rows_k - work.first);
  std::fill_n(sums.first, int64_t{kBlock} * columns_qk(p), 0.f);
  std::fill_n(sums.second, int64_t{kBlock} * columns_v(p), 0.f);
  BackwardTile<E> tile(p, buffers, delta, {false, true});
  for (int64_t h = kv_head * p.group(); h < (kv_head + 1) * p.group() && work.cost > 0; ++h) {
    const Scores scores(p, s, work.batch, h);
    const TileRange tiles = query_tiles(scores.visibility(), work.first, kBlock, kBlock);
    tile.load_keys(s, work.batch, kv_head, work.first);
    for (int32_t t = tiles.begin; t < tiles.end; ++t) {
      tile.load_queries(s, scores, work.batch, h, t * kBlock);
      if (!tile.compute(tiles.full(t), nullptr)) continue;
      if (p.dk.defined()) tile.add_dk(sums.first, columns_qk(p));
      if (p.dv.defined()) tile.add_dv(sums.second, columns_v(p));
    }
  }
  const int64_t row = s.k_begin + work.first;
  store_rows(p, p.dk, work.batch, kv_head, row, count, count, static_cast<int>(p.head_dim_qk),
             sums.first, columns_qk(p));
  store_rows(p, p.dv, work.batch, kv_head, row, count, count, static_cast<int>(p.head_dim_v),
             sums.second, columns_v(p));
}

template <class E>
void split_queries(const Problem& p, const BackwardBuffers<E>& buffers, const TileSums& sums,
                   const float* delta, const WorkTile& work, int64_t head) {
  const Sequence s = p.sequence(work.batch);
  const int count = std::min(kBlock, s.rows_q - work.first);
  std::fill_n(sums.first, int64_t{kBlock} * columns_qk(p), 0.f);
  if (work.cost > 0) {
    BackwardTile<E> tile(p, buffers, delta, {true, false});
    const Scores scores(p, s, work.batch, head);
    const TileRange tiles = key_tiles(scores.visibility(), work.first, kBlock, kBlock);
    tile.load_queries(s, scores, work.batch, head, work.first);
    for (int32_t t = tiles.begin; t < tiles.end; ++t) {
      tile.load_keys(s, work.batch, p.kv_head(head), t * kBlock);
      if (tile.compute(tiles.full(t), nullptr)) tile.add_dq(sums.first, columns_qk(p));
    }
  }
  store_rows(p, p.dq, work.batch, head, s.q_begin + work.first, count, count,
             static_cast<int>(p.head_dim_qk), sums.first, columns_qk(p));
}

// ---- launch
// ---------------------------------------------------------------------------------------

template <class E>
class Launch {
 public:
  Launch(const Problem& p, Workspace workspace)
      : p_(p),
        l_(layout<E>(p)),
        delta_(static_cast<float*>(workspace.data)),
        tiles_(reinterpret_cast<WorkTile*>(static_cast<char*>(workspace.data) + l_.delta_bytes)),
        slots_(static_cast<char*>(workspace.data) + l_.delta_bytes + l_.list_bytes) {}

  void run() {
    const int64_t count = list(TileOf::kQueries);
    run_tasks(l_.threads, count, [&](int64_t i, int) { prepare(p_, tiles_[i], delta_); });
    if (p_.dsink) {
      run_tasks(l_.threads, p_.heads_q, [&](int64_t h, int) { sink_gradient(p_, h, delta_); });
    }
    if (l_.whole) {
      whole();
    } else {
      if (p_.dq.defined()) split(count, p_.heads_q, split_queries<E>);
      if (wants_dkdv(p_)) split(list(TileOf::kKeys), p_.heads_kv, split_keys<E>);
    }
    mask_gradient();
  }

 private:
  int64_t list(TileOf side) { return list_work_tiles(p_, side, kBlock, kBlock, tiles_); }

  void whole() {
    run_tasks(l_.threads, p_.batch * p_.heads_kv, [&](int64_t i, int slot) {
      Carver carver(slots_ + slot * l_.slot_bytes);
      const BackwardBuffers<E> buffers(p_, carver);
      const Sums sums(p_, carver);
      WholeTask<E>(p_, buffers, sums, delta_, i / p_.heads_kv, i % p_.heads_kv).run();
      release_matrix_unit<E>();
    });
  }

  template <class Task>
  void split(int64_t count, int64_t heads, Task task) {
    run_tasks(l_.threads, count * heads, [&](int64_t i, int slot) {
      Carver carver(slots_ + slot * l_.slot_bytes);
      const BackwardBuffers<E> buffers(p_, carver);
      const TileSums sums(p_, carver);
      task(p_, buffers, sums, delta_, tiles_[i / heads], i % heads);
      release_matrix_unit<E>();
    });
  }

  void mask_gradient() {
    run_tasks(l_.threads, dmask_tasks(p_), [&](int64_t i, int slot) {
      Carver carver(slots_ + slot * l_.slot_bytes);
      const BackwardBuffers<E> buffers(p_, carver);
      mask_gradient_tile<E>(p_, buffers, delta_, carver.take<float>(kBlock * kBlock), i);
      release_matrix_unit<E>();
    });
  }

  const Problem& p_;
  const Layout l_;
  float* delta_;
  WorkTile* tiles_;
  char* slots_;
};

}  // namespace

size_t backward_workspace_bytes(const Problem& p) {
  return uses_amx(p) ? layout<Bits16>(p).total() : layout<float>(p).total();
}

Status backward(const Problem& p, Workspace workspace, void*) {
  if (uses_amx(p)) {
    Launch<Bits16>(p, workspace).run();
  } else {
    Launch<float>(p, workspace).run();
  }
  return {};
}

std::string describe_backward(const Problem& p) {
  const bool whole = uses_amx(p) ? layout<Bits16>(p).whole : layout<float>(p).whole;
  const std::string block = std::to_string(kBlock);
  return describe_engine(p) + ", tiles of " + block + " queries x " + block + " keys, " +
         (whole ? "a task per key/value head" : "a task per key tile, then per query tile");
}

}  // namespace ffpa::cpu
