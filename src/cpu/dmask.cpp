// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "cpu/dmask.h"

#include <algorithm>

namespace ffpa::cpu {
namespace {

constexpr int kBlock = kBackwardBlock;

// Indices of one dimension that a task covers.
struct Span {
  int64_t begin, end;
};

// The mask's gradient as [batch][head][query tile][key tile]; 1 where it broadcasts.
struct Grid {
  int64_t batches, heads, rows, columns;

  explicit Grid(const Problem& p)
      : batches(p.dmask.batch_stride ? p.batch : 1),
        heads(p.dmask.head_stride ? p.heads_q : 1),
        rows(p.dmask.row_stride ? tiles(p.seqlen_q) : 1),
        columns(p.dmask.column_stride ? tiles(p.seqlen_k) : 1) {}

  static int64_t tiles(int64_t n) { return (n + kBlock - 1) / kBlock; }
};

Span span(int64_t stride, int64_t index, int64_t all) {
  return stride ? Span{index, index + 1} : Span{0, all};
}

void store(const Problem& p, int64_t batch, int64_t head, int64_t row, int64_t column, float x) {
  const MaskView& m = p.dmask;
  char* to = static_cast<char*>(m.data) + m.offset(batch, head, row, column) * dtype_bytes(m.dtype);
  store_row(1, &x, m.dtype, to);
}

// Sums over the broadcast dimensions of the tile, and writes.
void store_tile(const Problem& p, int64_t batch, int64_t head, int64_t row0, int64_t column0,
                const float* sums) {
  const int rows = static_cast<int>(std::min<int64_t>(kBlock, p.seqlen_q - row0));
  const int columns = static_cast<int>(std::min<int64_t>(kBlock, p.seqlen_k - column0));
  const bool by_row = p.dmask.row_stride != 0, by_column = p.dmask.column_stride != 0;
  double by_columns[kBlock] = {}, total = 0;
  for (int r = 0; r < (by_row ? rows : kBlock); ++r) {
    double sum = 0;
    for (int c = 0; c < (by_column ? columns : kBlock); ++c) {
      const float x = sums[r * kBlock + c];
      if (by_row && by_column) store(p, batch, head, row0 + r, column0 + c, x);
      by_columns[c] += x;
      sum += x;
    }
    if (by_row && !by_column) store(p, batch, head, row0 + r, 0, static_cast<float>(sum));
    total += sum;
  }
  for (int c = 0; !by_row && by_column && c < columns; ++c) {
    store(p, batch, head, 0, column0 + c, static_cast<float>(by_columns[c]));
  }
  if (!by_row && !by_column) store(p, batch, head, 0, 0, static_cast<float>(total));
}

}  // namespace

int64_t dmask_tasks(const Problem& p) {
  if (!p.dmask.defined()) return 0;
  const Grid g(p);
  return g.batches * g.heads * g.rows * g.columns;
}

template <class E>
void mask_gradient_tile(const Problem& p, const BackwardBuffers<E>& buffers, const float* delta,
                        float* sums, int64_t task) {
  const Grid g(p);
  const int64_t column = task % g.columns, row = task / g.columns % g.rows;
  const int64_t head = task / g.columns / g.rows % g.heads;
  const int64_t batch = task / g.columns / g.rows / g.heads;
  std::fill_n(sums, kBlock * kBlock, 0.f);
  BackwardTile<E> tile(p, buffers, delta, {false, false});
  const Span batches = span(p.dmask.batch_stride, batch, p.batch);
  for (int64_t b = batches.begin; b < batches.end; ++b) {
    const Sequence s = p.sequence(b);
    const Span heads = span(p.dmask.head_stride, head, p.heads_q);
    for (int64_t h = heads.begin; h < heads.end; ++h) {
      const Scores scores(p, s, b, h);
      const Span columns = span(p.dmask.column_stride, column, Grid::tiles(s.len_k));
      for (int64_t j = columns.begin; j < columns.end; ++j) {
        const auto j0 = static_cast<int32_t>(j * kBlock);
        const TileRange seen = query_tiles(scores.visibility(), j0, kBlock, kBlock);
        if (seen.count() == 0) continue;
        tile.load_keys(s, b, p.kv_head(h), j0);
        const Span rows = span(p.dmask.row_stride, row, Grid::tiles(s.len_q));
        for (int64_t i = std::max<int64_t>(rows.begin, seen.begin);
             i < std::min<int64_t>(rows.end, seen.end); ++i) {
          const auto t = static_cast<int32_t>(i);
          tile.load_queries(s, scores, b, h, t * kBlock);
          tile.compute(seen.full(t), sums);
        }
      }
    }
  }
  store_tile(p, batch, head, row * kBlock, column * kBlock, sums);
}

template void mask_gradient_tile<float>(const Problem&, const BackwardBuffers<float>&, const float*,
                                        float*, int64_t);
template void mask_gradient_tile<Bits16>(const Problem&, const BackwardBuffers<Bits16>&,
                                         const float*, float*, int64_t);

}  // namespace ffpa::cpu
