// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// What forward and backward share: scratch memory, and tiles as lists of rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/problem.h"
#include "cpu/matmul.h"
#include "cpu/row_kernels.h"

namespace ffpa::cpu {

inline constexpr int64_t kAlignment = 64;

// Hands out pieces of the workspace; without memory, only measures them.
class Arena {
 public:
  explicit Arena(void* base = nullptr) : base_(static_cast<char*>(base)) {}

  template <class T>
  T* take(int64_t count) {
    char* at = base_ ? base_ + used_ : nullptr;
    used_ += (count * static_cast<int64_t>(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<T*>(at);
  }
  bool measures_only() const { return !base_; }
  size_t used() const { return static_cast<size_t>(used_); }

 private:
  char* base_;
  int64_t used_ = 0;
};

// Workers, one a thread, in the workspace; `make(arena)` takes what each needs besides.
template <class Worker, class Make>
Worker* take_workers(Arena& arena, int count, const Make& make) {
  Worker* workers = arena.take<Worker>(count);
  for (int w = 0; w < count; ++w) {
    const Worker worker = make(arena);
    if (!arena.measures_only()) std::construct_at(workers + w, worker);
  }
  return workers;
}

// q, out, k and v.
inline int64_t tensor_bytes(const Problem& p) {
  return (p.total_q * p.heads_q + p.total_k * p.heads_kv) * (p.head_dim_qk + p.head_dim_v) *
         dtype_bytes(p.dtype);
}

inline void* element_row(const Rows& rows, DType dtype, int64_t batch, int64_t head, int64_t row) {
  const int64_t offset =
      batch * rows.batch_stride + head * rows.head_stride + row * rows.row_stride;
  return rows.data + offset * dtype_bytes(dtype);
}

// "avx512, bf16 tiles, 2 threads, <tiles>".
std::string describe(const Problem& p, int workers, const std::string& tiles);

constexpr int round_up(int n, int unit) { return (n + unit - 1) / unit * unit; }
// Row length of a float32 tile: whole vectors, and no power of two, which would put the rows of a
// column into one set of the cache.
constexpr int padded_stride(int columns) { return round_up(columns, kColumnRound) + 16; }

// A float32 tile that products write.
struct FloatTile {
  float* data = nullptr;
  int64_t stride = 0;

  float* row(int64_t r) const { return data + r * stride; }
  static FloatTile take(Arena& arena, int rows, int columns) {
    const int64_t stride = padded_stride(columns);
    return {arena.take<float>(round_up(rows, kRowRound) * stride), stride};
  }
};

// Rows of a tile as pointers, and those of them that hold infinities or NaN. Where such a row is
// one of the terms that a product sums up, 0 * NaN would reach results that must not see it:
// `terms` leaves them out, and `add_loose_terms` adds them where their factor is not 0.
class TileRows {
 public:
  static TileRows take(Arena& arena, int max_rows);

  void begin(DType dtype, int columns);
  void append(const void* row, bool loose = false) {
    if (loose) loose_[loose_count_++] = count_;
    all_[count_++] = row;
  }
  void append(const FloatTile& tile, int rows);
  // Once all rows are in: finds the loose ones, or leaves out those that were appended as such.
  void find_loose(const RowKernels& kernels);
  void leave_out_loose();

  int count() const { return count_; }
  int columns() const { return columns_; }
  DType dtype() const { return dtype_; }
  const void* row(int r) const { return all_[r]; }
  RowSet all() const { return {all_, count_, columns_, dtype_}; }
  RowSet terms() const { return {loose_count_ ? terms_ : all_, count_, columns_, dtype_}; }
  int loose_count() const { return loose_count_; }
  int loose(int i) const { return loose_[i]; }

 private:
  const void** all_ = nullptr;
  const void** terms_ = nullptr;
  int32_t* loose_ = nullptr;
  int count_ = 0, columns_ = 0, loose_count_ = 0;
  DType dtype_ = DType::kOther;
};

// C[m] += factor(m, r) * row r, over the loose rows of `terms`.
template <class F>
void add_loose_terms(const RowKernels& kernels, const TileRows& terms, int m, const F& factor,
                     const FloatTile& c) {
  for (int i = 0; i < terms.loose_count(); ++i) {
    const int r = terms.loose(i);
    for (int row = 0; row < m; ++row) {
      const float f = factor(row, r);
      if (f == 0) continue;
      kernels.add_scaled(f, terms.row(r), terms.dtype(), terms.columns(), c.row(row));
    }
  }
}

// Which keys the rows of a tile see, and which rows see its keys. Row h * queries + i is query
// `query` + i of head h.
class TileBand {
 public:
  static TileBand take(Arena& arena, int max_rows, int max_keys);
  void set(const Visibility& visible, int32_t query, int heads, int queries, int32_t key, int keys);
  // Of products [rows][keys]; of sums over keys [rows][..]; of sums over rows [keys][..].
  Band scores() const { return {by_row_, nullptr}; }
  Band over_keys() const { return {nullptr, by_row_}; }
  Band over_rows() const { return {nullptr, by_key_}; }

 private:
  Range* by_row_ = nullptr;
  Range* by_key_ = nullptr;
};

// Products <left, right> again, exactly, where one of the two rows is loose.
void redo_loose_products(const RowKernels& kernels, const TileRows& left, const TileRows& right,
                         const FloatTile& products);

}  // namespace ffpa::cpu
