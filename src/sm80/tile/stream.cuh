// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Blocks of streamed rows through shared memory, in chunks, each of them a cp.async group.
#pragma once

#include <cstddef>

#include "sm80/tile/panel.cuh"
#include "sm80/tile/sequence.cuh"

namespace ffpa::sm80 {

// Y1, Y2 or Z: row 0 of the sequence, of its first streamed head.
struct Source {
  const void* data;
  int64_t row_stride, head_stride;
};

// What a block works on.
struct Task {
  bool found;
  TileWork work;
  DeviceSequence sequence;
  Visibility visibility;
  TileRange tiles;        // of streamed rows
  int32_t own_rows;       // own rows of the tile that are in use
  int32_t streamed_len;   // streamed rows in use
  int32_t streamed_head;  // first one
  int32_t streamed_heads;
  int32_t split;      // part of the streamed rows
  Source sources[3];  // by phase
};

// Y1 by columns, Y2 by columns (where dP is needed), Z by rows.
enum Phase : int { kScorePhase, kDpPhase, kSumPhase };

// Walks over all chunks of a task: for every streamed head, for every block of rows, for every
// phase, its chunks. Asking and consuming walk by this one class.
template <class C, Op kOp>
struct Cursor {
  int head = 0, tile = 0, phase = kScorePhase, chunk = 0;

  // Chunks of the phase; `valid`: rows of the block.
  static __device__ __forceinline__ int chunks(const Params& p, int phase, int valid) {
    if (phase == kSumPhase) return (valid + p.memory.z_rows - 1) / p.memory.z_rows;
    return phase == kScorePhase ? p.memory.score_chunks : p.memory.dp_chunks;
  }
  __device__ __forceinline__ bool last_of_phase(const Params& p, int valid) const {
    return chunk + 1 == chunks(p, phase, valid);
  }
  __device__ __forceinline__ void advance(const Params& p, int valid, int begin, int end) {
    if (!last_of_phase(p, valid)) {
      ++chunk;
      return;
    }
    chunk = 0;
    if (phase != kSumPhase) {
      phase = phase == kScorePhase && needs_dp(kOp) ? kDpPhase : kSumPhase;
      return;
    }
    phase = kScorePhase;
    if (++tile == end) {
      tile = begin;
      ++head;
    }
  }
};

// kGeneral: rows that are not 16-byte aligned, several heads in a tile.
template <class T, class C, Op kOp, bool kGeneral>
class Stream {
 public:
  __device__ __forceinline__ Stream(const Params& p, const Task& task, uint32_t shared)
      : p_(p), task_(task), shared_(shared) {
    cursor_.tile = task.tiles.begin;
    if (task.tiles.count() == 0) cursor_.head = task.streamed_heads;
  }

  // Asks for own rows that stay, and for the first chunks.
  __device__ __forceinline__ void start() {
    if (cursor_.head < task_.streamed_heads) {
      if (p_.memory.own1_resident) copy_own(shared_, p_.own1, 0, panels_of(p_.own1.width));
      if (needs_dp(kOp) && p_.memory.own2_resident) {
        copy_own(shared_ + p_.memory.own2_at, p_.own2, 0, panels_of(p_.own2.width));
      }
    }
#pragma unroll 1
    for (int i = 0; i + 1 < p_.memory.stages; ++i) ask();
  }

  // Waits for the next chunk and gives its address. A barrier of the block: what threads wrote to
  // shared memory before is visible after, and all chunks and tiles before are free.
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
    return chunk;
  }

  // Asks for one more chunk, once after every `next`.
  __device__ __forceinline__ void ask() {
    if (cursor_.head < task_.streamed_heads) {
      const uint32_t to = stage(asked_);
      const int first = cursor_.tile * C::kBlock;
      const int valid = min_of(C::kBlock, task_.streamed_len - first);
      const Source s = task_.sources[cursor_.phase];
      const T* data = static_cast<const T*>(s.data);
      if (!owns_queries(kOp)) data += cursor_.head * s.head_stride;
      if (cursor_.phase != kSumPhase) {
        const bool scores = cursor_.phase == kScorePhase;
        ask_panels(to,
                   {data, s.row_stride, scores ? p_.streamed1.width : p_.streamed2.width,
                    scores ? p_.streamed1.aligned : p_.streamed2.aligned},
                   first, valid);
        if (!owns_queries(kOp) && scores && cursor_.chunk == 0) ask_statistics(first, valid);
      } else {
        const int row = cursor_.chunk * p_.memory.z_rows;
        copy_rows<T, C::kMaxWidth, C::kCopyLanes, C::kThreads, kGeneral>(
            to, {data, s.row_stride, p_.values.width, p_.values.aligned}, first + row, valid - row,
            p_.memory.z_rows, p_.memory.z_row_bytes);
      }
      cursor_.advance(p_, valid, task_.tiles.begin, task_.tiles.end);
    }
    cp_async_commit();
    asked_ = asked_ + 1 == p_.memory.stages ? 0 : asked_ + 1;
  }

  // lse, then delta of the block's rows, [2][kBlock] floats.
  __device__ __forceinline__ int streamed_statistics(int block_count) const {
    return 2 * C::kRows + block_count % 2 * 2 * C::kBlock;
  }

 private:
  __device__ __forceinline__ uint32_t stage(int i) const {
    return shared_ + p_.memory.stages_at + i * p_.memory.stage_bytes;
  }

  __device__ __forceinline__ void copy_own(uint32_t to, const Operand& own, int first_panel,
                                           int panels) const {
    const bool by_query = owns_queries(kOp);
    const RowSource<T> source = row_source<T>(
        own, task_.work.batch, by_query ? task_.work.head * p_.heads_per_tile : task_.work.head,
        by_query ? task_.sequence.q_begin : task_.sequence.k_begin);
#pragma unroll 1
    for (int i = 0; i < panels; ++i) {
      const uint32_t panel = to + i * C::kRows * kPanelRowBytes;
      const int column = (first_panel + i) * kPanel;
      if (kGeneral && p_.heads_per_tile > 1) {
        copy_own_panel<T, C::kRows, C::kThreads>(panel, source, own.head_stride, p_.heads_per_tile,
                                                 task_.work.first, task_.own_rows, column);
      } else {
        copy_panel<T, C::kRows, C::kThreads, kGeneral>(panel, source, task_.work.first,
                                                       task_.own_rows, column);
      }
    }
  }

  __device__ __forceinline__ void ask_panels(uint32_t to, const RowSource<T>& source, int first,
                                             int valid) const {
    const int first_panel = cursor_.chunk * p_.memory.panels;
    const int panels = min_of(p_.memory.panels, panels_of(source.width) - first_panel);
#pragma unroll 1
    for (int i = 0; i < panels; ++i) {
      copy_panel<T, C::kBlock, C::kThreads, kGeneral>(to + i * C::kBlock * kPanelRowBytes, source,
                                                      first, valid, (first_panel + i) * kPanel);
    }
    const bool scores = cursor_.phase == kScorePhase;
    if (scores ? !p_.memory.own1_resident : !p_.memory.own2_resident) {
      copy_own(to + p_.memory.panels * C::kBlock * kPanelRowBytes, scores ? p_.own1 : p_.own2,
               first_panel, panels);
    }
  }

  // lse and delta of a block of queries. Two blocks have room: by the time that the block after
  // the next is asked for, all warps are past the scores of this one.
  __device__ __forceinline__ void ask_statistics(int first, int valid) {
    const uint32_t to = shared_ + p_.memory.statistics_at + streamed_statistics(blocks_asked_) * 4;
    ++blocks_asked_;
    const int64_t head = task_.streamed_head + cursor_.head;
    const int64_t row = int64_t{task_.sequence.q_begin} + first;
    const int64_t token =
        p_.sequences.packed ? row : int64_t{task_.work.batch} * p_.sequences.seqlen_q + first;
    const float* lse = p_.lse.data + task_.work.batch * p_.lse.batch_stride +
                       head * p_.lse.head_stride + row * p_.lse.row_stride;
    const float* delta = p_.delta + head * p_.total_q + token;
#pragma unroll 1
    for (int r = static_cast<int>(threadIdx.x); r < C::kBlock; r += C::kThreads) {
      const int bytes = r < valid ? 4 : 0;
      cp_async_4(to + r * 4, lse + r * p_.lse.row_stride, bytes);
      cp_async_4(to + (C::kBlock + r) * 4, delta + r, bytes);
    }
  }

  const Params& p_;
  const Task& task_;
  const uint32_t shared_;
  Cursor<C, kOp> cursor_;  // the chunk to ask for next
  int asked_ = 0, taken_ = 0, blocks_asked_ = 0;
};

}  // namespace ffpa::sm80
