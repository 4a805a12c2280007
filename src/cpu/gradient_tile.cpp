// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "cpu/gradient_tile.h"

#include <cstring>

namespace ffpa::cpu {

GradientTile::GradientTile(const Problem& p, const Deltas& deltas, int max_rows, int max_keys,
                           Arena& arena)
    : p_(&p), deltas_(deltas), matmul_(&matmul_kernels(p.dtype)), rows_(&row_kernels()) {
  const int d = static_cast<int>(p.head_dim_qk), dv = static_cast<int>(p.head_dim_v);
  q_panel_ = arena.take<char>(matmul_->panel_bytes(max_rows, d));
  dout_panel_ = arena.take<char>(matmul_->panel_bytes(max_rows, dv));
  k_panel_ = arena.take<char>(matmul_->panel_bytes(max_keys, d));
  v_panel_ = arena.take<char>(matmul_->panel_bytes(max_keys, dv));
  probabilities_ = FloatTile::take(arena, max_rows, max_keys);
  gradients_ = FloatTile::take(arena, max_rows, max_keys);
  q_rows_ = TileRows::take(arena, max_rows);
  dout_rows_ = TileRows::take(arena, max_rows);
  k_rows_ = TileRows::take(arena, max_keys);
  v_rows_ = TileRows::take(arena, max_keys);
  band_ = TileBand::take(arena, max_rows, max_keys);
  lse_ = arena.take<float>(max_rows);
  delta_ = arena.take<float>(max_rows);
  dlse_ = arena.take<float>(max_rows);
}

void GradientTile::set_sequence(int64_t batch, int64_t kv_head) {
  batch_ = batch;
  kv_head_ = kv_head;
  s_ = p_->sequence(batch);
}

void GradientTile::set_keys(int32_t key, int keys) {
  key_ = key;
  k_rows_.begin(p_->dtype, static_cast<int>(p_->head_dim_qk));
  v_rows_.begin(p_->dtype, static_cast<int>(p_->head_dim_v));
  for (int j = 0; j < keys; ++j) {
    k_rows_.append(row_at(p_->k, kv_head_, s_.k_begin + key + j));
    v_rows_.append(row_at(p_->v, kv_head_, s_.k_begin + key + j));
  }
  k_rows_.find_loose(*rows_);
  v_rows_.find_loose(*rows_);
  matmul_->pack(Side::kRight, RowsAlong::kKept, k_rows_.all(), k_panel_);
  matmul_->pack(Side::kRight, RowsAlong::kKept, v_rows_.all(), v_panel_);
}

void GradientTile::set_queries(const QueryBlock& block) {
  block_ = block;
  q_rows_.begin(p_->dtype, static_cast<int>(p_->head_dim_qk));
  dout_rows_.begin(p_->dtype, static_cast<int>(p_->head_dim_v));
  for (int h = 0; h < block.heads; ++h) {
    const int64_t head = block.head + h;
    for (int i = 0; i < block.queries; ++i) {
      const int64_t row = s_.q_begin + block.query + i;
      const uint8_t loose = deltas_.loose(batch_, head, row);
      q_rows_.append(row_at(p_->q, head, row), loose & Deltas::kLooseQ);
      dout_rows_.append(row_at(p_->dout, head, row), loose & Deltas::kLooseDout);
      const int r = h * block.queries + i;
      lse_[r] = p_->lse.at(batch_, head, row);
      delta_[r] = deltas_.at(batch_, head, row);
      dlse_[r] = p_->dlse.defined() ? p_->dlse.at(batch_, head, row) : 0.f;
    }
  }
  q_rows_.leave_out_loose();
  dout_rows_.leave_out_loose();
  matmul_->pack(Side::kLeft, RowsAlong::kKept, q_rows_.all(), q_panel_);
  matmul_->pack(Side::kLeft, RowsAlong::kKept, dout_rows_.all(), dout_panel_);
}

void GradientTile::compute(bool full, GradientOf of, bool with_gradients) {
  const int rows = block_.rows(), n = keys();
  band_.set(p_->visibility(s_), block_.query, block_.heads, block_.queries, key_, n);
  matmul_->multiply(rows, n, q_rows_.columns(), q_panel_, k_panel_, probabilities_.data,
                    probabilities_.stride, false, band_.scores());
  if (with_gradients) {
    matmul_->multiply(rows, n, dout_rows_.columns(), dout_panel_, v_panel_, gradients_.data,
                      gradients_.stride, false, band_.scores());
  } else {
    std::fill(gradients_.data, gradients_.row(rows), 0.f);
  }
  if (matmul_->finite_only) {
    redo_loose_products(*rows_, q_rows_, k_rows_, probabilities_);
    if (with_gradients) redo_loose_products(*rows_, dout_rows_, v_rows_, gradients_);
  }
  for (int h = 0; h < block_.heads; ++h) {
    const int first = h * block_.queries;
    const ScoreRules rules = score_rules(*p_, batch_, block_.head + h, s_);
    rows_->gradient(rules,
                    {probabilities_.row(first), probabilities_.stride, block_.query, key_,
                     block_.queries, n, full},
                    gradients_.row(first), lse_ + first, delta_ + first, dlse_ + first, of);
  }
}

}  // namespace ffpa::cpu
