// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Blocks of streamed rows through shared memory, in chunks. For every streamed head, for every
// block of rows: the chunks of Y1 (by columns), of Y2 (by columns), of Z (by rows). A chunk is one
// cp.async group; the consumer takes chunks in exactly the order in which they are asked for.
#pragma once

#include "sm80/tile/panel.cuh"
#include "sm80/tile/sequence.cuh"

namespace ffpa::sm80 {

// What a block works on.
struct Task {
  TileWork work;
  DeviceSequence sequence;
  Visibility visibility;
  TileRange tiles;        // of streamed rows
  int32_t own_rows;       // own rows of the tile that are in use
  int32_t streamed_len;   // streamed rows in use
  int32_t streamed_head;  // first one
  int32_t streamed_heads;
};

template <class T, class C, Op kOp>
class Stream {
 public:
  __device__ __forceinline__ Stream(const Params& p, const Task& task, uint32_t shared)
      : p_(p), task_(task), shared_(shared), tile_(task.tiles.begin) {
    if (tile_ >= task.tiles.end) head_ = task.streamed_heads;
  }

  // Asks for own rows that stay, and for the first chunks.
  __device__ __forceinline__ void start() {
    if (head_ < task_.streamed_heads) {
      if (p_.memory.own1_resident) copy_own(shared_, p_.own1, 0, panels_of(p_.own1.width));
      if (needs_dp(kOp) && p_.memory.own2_resident) {
        copy_own(shared_ + p_.memory.own2_at, p_.own2, 0, panels_of(p_.own2.width));
      }
    }
#pragma unroll 1
    for (int i = 0; i + 1 < p_.memory.stages; ++i) ask();
  }

  // Waits for the next chunk, gives its address and asks for a later one. A barrier of the block:
  // what threads wrote to shared memory before is visible after, and all chunks and tiles before
  // are free.
  __device__ __forceinline__ uint32_t next() {
    if (p_.memory.stages == 4) {
      cp_async_wait<2>();
    } else if (p_.memory.stages == 3) {
      cp_async_wait<1>();
    } else {
      cp_async_wait<0>();
    }
    __syncthreads();
    const uint32_t chunk = stage(taken_);
    taken_ = taken_ + 1 == p_.memory.stages ? 0 : taken_ + 1;
    ask();
    return chunk;
  }

  __device__ __forceinline__ int32_t valid_rows(int32_t tile) const {
    return min_of(C::kBlock, task_.streamed_len - tile * C::kBlock);
  }
  __device__ __forceinline__ int score_chunks(int width) const {
    return (width + p_.memory.panels * kPanel - 1) / (p_.memory.panels * kPanel);
  }
  __device__ __forceinline__ int value_chunks(int32_t tile) const {
    return (valid_rows(tile) + p_.memory.z_rows - 1) / p_.memory.z_rows;
  }
  // lse, then delta of the block's rows, [2][kBlock] floats.
  __device__ __forceinline__ uint32_t streamed_statistics(int block_count) const {
    return shared_ + p_.memory.statistics_at + (2 * C::kRows + block_count % 2 * 2 * C::kBlock) * 4;
  }

 private:
  __device__ __forceinline__ uint32_t stage(int i) const {
    return shared_ + p_.memory.stages_at + i * p_.memory.stage_bytes;
  }

  __device__ __forceinline__ void copy_own(uint32_t to, const Operand& own, int first_panel,
                                           int panels) const {
    const bool by_query = owns_queries(kOp);
    const RowSource<T> source =
        row_source<T>(own, task_.work.batch,
                      by_query ? task_.work.head * p_.heads_per_tile : task_.work.head,
                      by_query ? task_.sequence.q_begin : task_.sequence.k_begin);
#pragma unroll 1
    for (int i = 0; i < panels; ++i) {
      copy_own_panel<T, C::kRows, C::kThreads>(
          to + i * C::kRows * kPanelRowBytes, source, own.head_stride, p_.heads_per_tile,
          task_.work.first, task_.own_rows, (first_panel + i) * kPanel);
    }
  }

  __device__ __forceinline__ RowSource<T> streamed(const Operand& o) const {
    return row_source<T>(o, task_.work.batch, task_.streamed_head + head_,
                         owns_queries(kOp) ? task_.sequence.k_begin : task_.sequence.q_begin);
  }

  __device__ __forceinline__ void ask() {
    if (head_ < task_.streamed_heads) {
      const uint32_t to = stage(asked_);
      if (phase_ == 0) {
        ask_scores(to, p_.streamed1, p_.own1, p_.memory.own1_resident);
        if (!owns_queries(kOp) && chunk_ == 0) ask_statistics();
      } else if (phase_ == 1) {
        ask_scores(to, p_.streamed2, p_.own2, p_.memory.own2_resident);
      } else {
        const int first = chunk_ * p_.memory.z_rows;
        copy_rows<T, C::kCopyLanes, C::kThreads>(to, streamed(p_.values),
                                                 tile_ * C::kBlock + first,
                                                 valid_rows(tile_) - first, p_.memory.z_rows,
                                                 p_.memory.z_row_bytes);
      }
      advance();
    }
    cp_async_commit();
    asked_ = asked_ + 1 == p_.memory.stages ? 0 : asked_ + 1;
  }

  __device__ __forceinline__ void ask_scores(uint32_t to, const Operand& y, const Operand& own,
                                             bool own_resident) const {
    const RowSource<T> source = streamed(y);
    const int first_panel = chunk_ * p_.memory.panels;
    const int panels = min_of(p_.memory.panels, panels_of(y.width) - first_panel);
#pragma unroll 1
    for (int i = 0; i < panels; ++i) {
      copy_panel<T, C::kBlock, C::kThreads>(to + i * C::kBlock * kPanelRowBytes, source,
                                            tile_ * C::kBlock, valid_rows(tile_),
                                            (first_panel + i) * kPanel);
    }
    if (!own_resident) {
      copy_own(to + p_.memory.panels * C::kBlock * kPanelRowBytes, own, first_panel, panels);
    }
  }

  // lse and delta of a block of queries. Two blocks have room: by the time that the block after
  // the next is asked for, all warps are past the scores of this one.
  __device__ __forceinline__ void ask_statistics() {
    const uint32_t to = streamed_statistics(blocks_asked_);
    ++blocks_asked_;
    for (int r = static_cast<int>(threadIdx.x); r < C::kBlock; r += C::kThreads) {
      const int32_t i = tile_ * C::kBlock + r;
      const int bytes = i < task_.streamed_len ? 4 : 0;
      const int64_t row = task_.sequence.q_begin + int64_t{i}, head = task_.streamed_head + head_;
      const int64_t token =
          p_.sequences.packed ? row : int64_t{task_.work.batch} * p_.sequences.seqlen_q + i;
      const float* lse = p_.lse.data;
      if (bytes) {
        lse += task_.work.batch * p_.lse.batch_stride + head * p_.lse.head_stride +
               row * p_.lse.row_stride;
      }
      cp_async_4(to + r * 4, lse, bytes);
      cp_async_4(to + (C::kBlock + r) * 4, p_.delta + (bytes ? head * p_.total_q + token : 0),
                 bytes);
    }
  }

  __device__ __forceinline__ void advance() {
    ++chunk_;
    if (phase_ == 0 && chunk_ == score_chunks(p_.streamed1.width)) {
      chunk_ = 0;
      phase_ = needs_dp(kOp) ? 1 : 2;
    } else if (phase_ == 1 && chunk_ == score_chunks(p_.streamed2.width)) {
      chunk_ = 0;
      phase_ = 2;
    } else if (phase_ == 2 && chunk_ == value_chunks(tile_)) {
      chunk_ = 0;
      phase_ = 0;
      if (++tile_ == task_.tiles.end) {
        tile_ = task_.tiles.begin;
        ++head_;
      }
    }
  }

  const Params& p_;
  const Task& task_;
  const uint32_t shared_;
  // The chunk to ask for next.
  int head_ = 0, tile_, phase_ = 0, chunk_ = 0;
  int asked_ = 0, taken_ = 0, blocks_asked_ = 0;
};

}  // namespace ffpa::sm80
