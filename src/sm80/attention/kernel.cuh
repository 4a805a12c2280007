// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The one kernel of this path: see config.h for what its four operations own and stream.
#pragma once

#include "sm80/tile/products.cuh"
#include "sm80/tile/scores.cuh"
#include "sm80/tile/stream.cuh"

namespace ffpa::sm80 {

template <class T, int kIndex, Op kOp, bool kGeneral>
class Attention {
  using C = Config<kIndex>;
  static constexpr bool kOwnsQueries = owns_queries(kOp);
  static constexpr int kSumRegisters = C::kSumM * C::kSumN * 4;
  static constexpr int kScoreRegisters = C::kScoreM * C::kScoreN * 4;
  static constexpr bool kAhead = kSumRegisters + kScoreRegisters * (needs_dp(kOp) ? 2 : 1) <= 160;
  using Scores = float[C::kScoreM][C::kScoreN][4];
  using Sums = float[C::kSumM][C::kSumN][4];
  // P while dP is summed: rounded to T where 64 x 640 sums leave no registers for it.
  static constexpr bool kHoldRounded = kSumRegisters > 128;
  struct Held {
    float exact[kHoldRounded ? 1 : C::kScoreM][kHoldRounded ? 1 : C::kScoreN][4];
    uint32_t rounded[kHoldRounded ? C::kScoreM : 1][kHoldRounded ? C::kScoreN : 1][2];
  };

 public:
  __device__ __forceinline__ Attention(const Params& p, const Task& task, char* shared)
      : p_(p),
        task_(task),
        shared_(shared_address(shared)),
        statistics_(reinterpret_cast<float*>(shared + p.memory.statistics_at)),
        stream_(p, task, shared_),
        columns_(sum_columns<C>(p.values.width)) {}

  __device__ __forceinline__ void run() {
    stream_.start();
    if (kOp == Op::kQueryGradient) load_own_statistics();
    clear(sums_);
    if (kOp == Op::kForward) clear_rows();
    visit_blocks();
    if (kOp == Op::kForward) finish_rows();
    if (kOp == Op::kForward && kGeneral && p_.partials.splits > 1) {
      store_partials();
    } else {
      store_sums();
    }
  }

 private:
  template <int kM, int kN>
  static __device__ __forceinline__ void clear(float (&x)[kM][kN][4]) {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) x[m][n][e] = 0;
      }
    }
  }

  // No keys yet. Visible after the next chunk.
  __device__ __forceinline__ void clear_rows() const {
    for (int r = static_cast<int>(threadIdx.x); r < C::kRows; r += C::kThreads) {
      *running_max(0, r) = minus_infinity();
      for (int w = 0; w < C::kScoreWarpsN; ++w) *partial_sum(w, r) = 0;
    }
  }

  // ---- rows and columns of this thread's scores ------------------------------------------------

  static __device__ __forceinline__ int score_warp_m() { return warp_id() / C::kScoreWarpsN; }
  static __device__ __forceinline__ int score_warp_n() { return warp_id() % C::kScoreWarpsN; }
  // Own row of fragment rows m, half (0: elements 0 and 1, 1: elements 2 and 3).
  static __device__ __forceinline__ int score_row(int m, int half) {
    return score_warp_m() * (16 * C::kScoreM) + 16 * m + 8 * half + lane_id() / 4;
  }
  static __device__ __forceinline__ int score_column(int n) {
    return score_warp_n() * (8 * C::kScoreN) + 8 * n + lane_id() % 4 * 2;
  }
  // Query (own queries) or key of own row `row` of the tile.
  __device__ __forceinline__ int32_t own_index(int row) const {
    const int32_t r = task_.work.first + row;
    return kOwnsQueries && p_.heads_per_tile > 1 ? r / p_.heads_per_tile : r;
  }
  __device__ __forceinline__ int32_t own_head(int row) const {
    if (p_.heads_per_tile == 1) return task_.work.head;
    return task_.work.head * p_.heads_per_tile + (task_.work.first + row) % p_.heads_per_tile;
  }
  // Streamed rows that own row `row` sees.
  __device__ __forceinline__ Range visible(int row) const {
    if (row >= task_.own_rows) return {0, 0};
    return kOwnsQueries ? visible_keys(task_.visibility, own_index(row))
                        : visible_queries(task_.visibility, own_index(row));
  }
  __device__ __forceinline__ Pair pair_at(int32_t streamed_head, int row, int32_t column) const {
    if (kOwnsQueries) return {task_.work.batch, own_head(row), own_index(row), column};
    return {task_.work.batch, streamed_head, column, own_index(row)};
  }

  // ---- blocks of streamed rows ------------------------------------------------------------------

  __device__ __forceinline__ void visit_blocks() {
#pragma unroll 1
    for (int head = 0; head < task_.streamed_heads; ++head) {
#pragma unroll 1
      for (int32_t tile = task_.tiles.begin; tile < task_.tiles.end; ++tile) {
        visit(task_.streamed_head + head, tile);
      }
    }
  }

  __device__ __forceinline__ void visit(int32_t head, int32_t tile) {
    Scores s;
    multiply_scores<kScorePhase>(s);
    finish_scores(s, head, tile);
    if (kOp == Op::kForward) online_softmax(s);
    if constexpr (needs_dp(kOp)) {
      Held held;
      hold(s, held);
      multiply_scores<kDpPhase>(s);
      score_gradients(held, s, head, tile);
    } else if (kGeneral && p_.extras.dropout) {
      drop(s, head, tile);
    }
    store_w<T, C>(s, shared_ + p_.memory.w_at);
    ++blocks_;
    add_to_sums(tile);
  }

  // s = X1 Y1^T or X2 Y2^T.
  template <int kPhase>
  __device__ __forceinline__ void multiply_scores(Scores& s) {
    constexpr bool kFirst = kPhase == kScorePhase;
    const MemoryPlan& m = p_.memory;
    const int chunks = Cursor<C, kOp>::chunks(p_, kPhase, C::kBlock);
    const bool resident = kFirst ? m.own1_resident : m.own2_resident;
    int columns = kFirst ? p_.streamed1.width : p_.streamed2.width;
    uint32_t own = shared_ + (kFirst ? 0 : m.own2_at);
    clear(s);
#pragma unroll 1
    for (int c = 0; c < chunks; ++c) {
      const uint32_t chunk = stream_.next();
      stream_.ask();
      if (!resident) own = chunk + m.panels * (C::kBlock * kPanelRowBytes);
      add_score_product<T, C, kAhead>(s, own, chunk,
                                      (min_of(m.panels * kPanel, columns) + 15) / 16);
      own += m.panels * (C::kRows * kPanelRowBytes);
      columns -= m.panels * kPanel;
    }
  }

  __device__ __forceinline__ void add_to_sums(int32_t tile) {
    const int valid = min_of(C::kBlock, task_.streamed_len - tile * C::kBlock);
    const int chunks = Cursor<C, kOp>::chunks(p_, kSumPhase, valid);
#pragma unroll 1
    for (int c = 0; c < chunks; ++c) {
      const uint32_t chunk = stream_.next();
      stream_.ask();
      if (kOp == Op::kForward && c == 0) rescale_sums();
      const int first = c * p_.memory.z_rows;
      const int rows = min_of(p_.memory.z_rows, valid - first);
      add_sum_product<T, C>(sums_, columns_, shared_ + p_.memory.w_at, first, chunk,
                            p_.memory.z_row_bytes, (rows + 15) / 16);
    }
  }

  // Products -> forward: scores times log2(e), -inf where hidden; backward: P.
  __device__ __forceinline__ void finish_scores(Scores& s, int32_t streamed_head, int32_t tile) {
    const bool full = task_.tiles.full(tile);
#pragma unroll
    for (int m = 0; m < C::kScoreM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = score_row(m, half);
        const Range seen = full ? Range{0, 0} : visible(row);
#pragma unroll
        for (int n = 0; n < C::kScoreN; ++n) {
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            const int32_t column = tile * C::kBlock + score_column(n) + e % 2;
            const bool hidden = full ? kGeneral && row >= task_.own_rows
                                     : column < seen.begin || column >= seen.end;
            Score x{s[m][n][e] * (p_.softmax_scale * kLog2e), 1};
            if (kGeneral && !hidden) x = extras(s[m][n][e], streamed_head, row, column);
            if (hidden) x.value = minus_infinity();
            s[m][n][e] = kOp == Op::kForward ? x.value : probability(x, statistic(0, m, n, e));
          }
        }
      }
    }
  }

  __device__ __forceinline__ Score extras(float product, int32_t streamed_head, int row,
                                          int32_t column) const {
    const Pair at = pair_at(streamed_head, row, column);
    const int32_t self = at.i + task_.visibility.diagonal();
    const Score x = extra_score(p_.extras, product * p_.softmax_scale, at, self);
    return {x.value * kLog2e, x.derivative};
  }

  // P; where dS comes from it, times the softcap's derivative, and 0 where dS is 0. A query without
  // keys has lse = -inf and no P.
  __device__ __forceinline__ float probability(const Score& x, float lse) const {
    const float prob = lse == minus_infinity() ? 0 : exp2_approximate(x.value - lse * kLog2e);
    if (!needs_dp(kOp)) return prob;
    if (prob == 0 || (prob >= kAllWeight && !p_.has_dlse)) return 0;
    return kGeneral ? prob * x.derivative : prob;
  }

  // ---- forward ---------------------------------------------------------------------------------

  // Of own rows. In shared memory: the sums need the registers.
  __device__ __forceinline__ float* partial_max(int warp_n, int row) const {
    return statistics_ + warp_n * C::kRows + row;
  }
  __device__ __forceinline__ float* partial_sum(int warp_n, int row) const {
    return statistics_ + (C::kScoreWarpsN + warp_n) * C::kRows + row;
  }
  __device__ __forceinline__ float* running_max(int which, int row) const {
    return statistics_ + (2 * C::kScoreWarpsN + which) * C::kRows + row;
  }
  __device__ __forceinline__ float* row_factor(int row) const {
    return statistics_ + (2 * C::kScoreWarpsN + 2) * C::kRows + row;
  }
  // The warps that share own rows.
  static __device__ __forceinline__ void score_row_barrier() {
    named_barrier(1 + score_warp_m(), 32 * C::kScoreWarpsN);
  }

  __device__ __forceinline__ void online_softmax(Scores& s) {
#pragma unroll
    for (int m = 0; m < C::kScoreM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = minus_infinity();
#pragma unroll
        for (int n = 0; n < C::kScoreN; ++n) {
          most = fmaxf(most, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
        }
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        if (lane_id() % 4 == 0) *partial_max(score_warp_n(), score_row(m, half)) = most;
      }
    }
    score_row_barrier();
#pragma unroll
    for (int m = 0; m < C::kScoreM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = score_row(m, half);
        const float before = *running_max(blocks_ % 2, row);
        float now = before;
#pragma unroll
        for (int w = 0; w < C::kScoreWarpsN; ++w) now = fmaxf(now, *partial_max(w, row));
        // A row without keys so far: exp2(-inf - 0) = 0.
        const float reference = now == minus_infinity() ? 0 : now;
        const float rescale = exp2_approximate(before - reference);
        float sum = 0;
#pragma unroll
        for (int n = 0; n < C::kScoreN; ++n) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float& x = s[m][n][2 * half + e];
            x = exp2_approximate(x - reference);
            sum += x;
          }
        }
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (lane_id() % 4 == 0) {
          float* all = partial_sum(score_warp_n(), row);
          *all = *all * rescale + sum;
          if (score_warp_n() == 0) {
            *running_max((blocks_ + 1) % 2, row) = now;
            *row_factor(row) = rescale;
          }
        }
      }
    }
  }

  static __device__ __forceinline__ int sum_row(int m, int half) {
    return warp_id() / C::kSumWarpsN * (16 * C::kSumM) + 16 * m + 8 * half + lane_id() / 4;
  }

  __device__ __forceinline__ void rescale_sums() {
    float factor[C::kSumM][2];
    bool any = false;
#pragma unroll
    for (int m = 0; m < C::kSumM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        factor[m][half] = *row_factor(sum_row(m, half));
        any |= factor[m][half] != 1;
      }
    }
    if (__any_sync(~0u, any)) multiply_sums(factor);
  }

  __device__ __forceinline__ void multiply_sums(const float (&factor)[C::kSumM][2]) {
#pragma unroll
    for (int m = 0; m < C::kSumM; ++m) {
#pragma unroll
      for (int n = 0; n < C::kSumN; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) sums_[m][n][e] *= factor[m][e / 2];
      }
    }
  }

  // lse of own rows, and the factors that turn sums into out.
  __device__ __forceinline__ void finish_rows() {
    __syncthreads();
    for (int r = static_cast<int>(threadIdx.x); r < C::kRows; r += C::kThreads) finish_row(r);
    __syncthreads();
    float factor[C::kSumM][2];
#pragma unroll
    for (int m = 0; m < C::kSumM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) factor[m][half] = *row_factor(sum_row(m, half));
    }
    multiply_sums(factor);
  }

  __device__ __forceinline__ void finish_row(int row) const {
    float most = *running_max(blocks_ % 2, row), sum = 0;
#pragma unroll
    for (int w = 0; w < C::kScoreWarpsN; ++w) sum += *partial_sum(w, row);
    float lse = minus_infinity(), factor = 0;
    if (sum != 0 && row < task_.own_rows) {
      float weight = 1;
      if (p_.sink && p_.partials.splits == 1) {
        const float sink = p_.sink[own_head(row) * p_.sink_stride] * kLog2e;
        const float now = fmaxf(most, sink);
        weight = exp2f(most - now);
        sum = sum * weight + exp2f(sink - now);
        most = now;
      }
      lse = (most + log2f(sum)) * kLn2;
      factor = weight / sum * p_.result_scale;
    }
    *row_factor(row) = factor;
    if (!own_exists(row)) return;
    if (kGeneral && p_.partials.splits > 1) {
      p_.partials.lse[partial_row(row)] = lse;
    } else if (p_.lse.data) {
      *lse_at(own_head(row), own_index(row)) = lse;
    }
  }

  // ---- backward --------------------------------------------------------------------------------

  __device__ __forceinline__ float* lse_at(int32_t head, int32_t i) const {
    return p_.lse.data + task_.work.batch * p_.lse.batch_stride + head * p_.lse.head_stride +
           (task_.sequence.q_begin + int64_t{i}) * p_.lse.row_stride;
  }

  // Number of query i among those of the whole call.
  __device__ __forceinline__ int64_t token_of(int32_t i) const {
    return p_.sequences.packed ? task_.sequence.q_begin + int64_t{i}
                               : int64_t{task_.work.batch} * p_.sequences.seqlen_q + i;
  }

  // Own rows: lse [kRows], delta [kRows]. Visible after the next chunk.
  __device__ __forceinline__ void load_own_statistics() const {
    for (int r = static_cast<int>(threadIdx.x); r < C::kRows; r += C::kThreads) {
      float lse = minus_infinity(), delta = 0;
      if (r < task_.own_rows) {
        const int32_t i = own_index(r), head = own_head(r);
        lse = *lse_at(head, i);
        delta = p_.delta[head * p_.total_q + token_of(i)];
      }
      statistics_[r] = lse;
      statistics_[C::kRows + r] = delta;
    }
  }

  // Index 0: lse, 1: delta, of element e of fragment (m, n).
  __device__ __forceinline__ float statistic(int which, int m, int n, int e) const {
    if (kOwnsQueries) return statistics_[which * C::kRows + score_row(m, e / 2)];
    return statistics_[2 * C::kRows + blocks_ % 2 * 2 * C::kBlock + which * C::kBlock +
                       score_column(n) + e % 2];
  }

  static __device__ __forceinline__ void hold(const Scores& s, Held& held) {
#pragma unroll
    for (int m = 0; m < C::kScoreM; ++m) {
#pragma unroll
      for (int n = 0; n < C::kScoreN; ++n) {
        if constexpr (kHoldRounded) {
          held.rounded[m][n][0] = pack<T>(s[m][n][0], s[m][n][1]);
          held.rounded[m][n][1] = pack<T>(s[m][n][2], s[m][n][3]);
        } else {
#pragma unroll
          for (int e = 0; e < 4; ++e) held.exact[m][n][e] = s[m][n][e];
        }
      }
    }
  }

  static __device__ __forceinline__ float held_at(const Held& held, int m, int n, int e) {
    if constexpr (kHoldRounded) return unpack<T>(held.rounded[m][n][e / 2], e % 2);
    return held.exact[m][n][e];
  }

  // P and dP -> dS, the gradient of the scaled products, in place of dP.
  __device__ __forceinline__ void score_gradients(const Held& held, Scores& dp,
                                                  int32_t streamed_head, int32_t tile) const {
#pragma unroll
    for (int m = 0; m < C::kScoreM; ++m) {
#pragma unroll
      for (int n = 0; n < C::kScoreN; ++n) {
        if (kGeneral && p_.extras.dropout) drop_pairs(dp, m, n, streamed_head, tile);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float prob = held_at(held, m, n, e);
          dp[m][n][e] = prob == 0 ? 0 : prob * (dp[m][n][e] - statistic(1, m, n, e));
        }
      }
    }
  }

  // ---- dropout ---------------------------------------------------------------------------------

  // Elements of one fragment: dropped ones become 0, in the backward kept ones are scaled.
  __device__ __forceinline__ void drop_pairs(Scores& x, int m, int n, int32_t streamed_head,
                                             int32_t tile) const {
    const float scale = needs_dp(kOp) ? p_.extras.keep_scale : 1;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Pair at =
          pair_at(streamed_head, score_row(m, half), tile * C::kBlock + score_column(n));
      const KeptPair kept = kept_pair(p_, at, kOwnsQueries);
      x[m][n][2 * half] = kept.first ? x[m][n][2 * half] * scale : 0;
      x[m][n][2 * half + 1] = kept.second ? x[m][n][2 * half + 1] * scale : 0;
    }
  }

  __device__ __forceinline__ void drop(Scores& s, int32_t streamed_head, int32_t tile) const {
#pragma unroll
    for (int m = 0; m < C::kScoreM; ++m) {
#pragma unroll
      for (int n = 0; n < C::kScoreN; ++n) drop_pairs(s, m, n, streamed_head, tile);
    }
  }

  // ---- results ---------------------------------------------------------------------------------

  // Own rows that belong to the sequence, in use or not.
  __device__ __forceinline__ bool own_exists(int row) const {
    return own_index(row) < (kOwnsQueries ? task_.sequence.rows_q : task_.sequence.rows_k);
  }

  __device__ __forceinline__ void store_sums() const {
    const Operand& o = p_.result;
    const int64_t begin = kOwnsQueries ? task_.sequence.q_begin : task_.sequence.k_begin;
#pragma unroll
    for (int m = 0; m < C::kSumM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = sum_row(m, half);
        if (!own_exists(row)) continue;
        T* to = static_cast<T*>(const_cast<void*>(o.data)) + task_.work.batch * o.batch_stride +
                own_head(row) * o.head_stride + (begin + own_index(row)) * o.row_stride +
                columns_.first * 8 + lane_id() % 4 * 2;
        // Rows behind seqused, and the forward's factors, select.
        const bool used = row < task_.own_rows;
        const float scale = kOp == Op::kForward ? 1 : p_.result_scale;
#pragma unroll
        for (int n = 0; n < C::kSumN; ++n) {
          if (n < columns_.count) {
            const float x = used ? sums_[m][n][2 * half] * scale : 0;
            const float y = used ? sums_[m][n][2 * half + 1] * scale : 0;
            store_pair(to + 8 * n, x, y, o.aligned);
          }
        }
      }
    }
  }

  // Row of the partial results.
  __device__ __forceinline__ int64_t partial_row(int row) const {
    return (int64_t{task_.split} * p_.heads_q + own_head(row)) * p_.total_q +
           token_of(own_index(row));
  }

  __device__ __forceinline__ void store_partials() const {
#pragma unroll
    for (int m = 0; m < C::kSumM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = sum_row(m, half);
        if (!own_exists(row)) continue;
        float* to = p_.partials.out + partial_row(row) * p_.result.width + columns_.first * 8 +
                    lane_id() % 4 * 2;
#pragma unroll
        for (int n = 0; n < C::kSumN; ++n) {
          if (n < columns_.count) {
            *reinterpret_cast<float2*>(to + 8 * n) =
                make_float2(sums_[m][n][2 * half], sums_[m][n][2 * half + 1]);
          }
        }
      }
    }
  }

  static __device__ __forceinline__ void store_pair(T* to, float x, float y, bool aligned) {
    const uint32_t bits = pack<T>(x, y);
    if (aligned) {
      *reinterpret_cast<uint32_t*>(to) = bits;
    } else {
      reinterpret_cast<uint16_t*>(to)[0] = static_cast<uint16_t>(bits);
      reinterpret_cast<uint16_t*>(to)[1] = static_cast<uint16_t>(bits >> 16);
    }
  }

  const Params& p_;
  const Task& task_;
  const uint32_t shared_;
  float* const statistics_;
  Stream<T, C, kOp, kGeneral> stream_;
  const SumColumns columns_;
  Sums sums_;
  int blocks_ = 0;
};

// Own rows of a tile, and what they see. False where there is nothing to do.
template <class T, class C, Op kOp>
__device__ __forceinline__ bool make_task(const Params& p, Task* t) {
  constexpr bool kByQuery = owns_queries(kOp);
  const int32_t own_heads = kByQuery ? p.heads_q / p.heads_per_tile : p.heads_kv;
  const int32_t splits = p.partials.splits;
  if (!find_work(p, blockIdx.x / splits, own_heads, C::kRows, &t->work)) return false;
  t->sequence = sequence_of(p.sequences, t->work.batch);
  const DeviceSequence& s = t->sequence;
  t->visibility = {s.len_q, s.len_k, p.window_left, p.window_right};
  const int32_t first = t->work.first;
  if (kByQuery) {
    t->own_rows = clamp(s.len_q * p.heads_per_tile - first, 0, C::kRows);
    const int32_t begin = first / p.heads_per_tile;
    const int32_t end = ceil_div(first + t->own_rows, p.heads_per_tile);
    t->tiles = key_tiles(t->visibility, begin, t->own_rows ? end - begin : 0, C::kBlock);
    t->split = static_cast<int32_t>(blockIdx.x % splits);
    const int32_t first_tile = t->tiles.begin, tiles = t->tiles.count();
    t->tiles.begin = first_tile + tiles * t->split / splits;
    t->tiles.end = first_tile + tiles * (t->split + 1) / splits;
    t->streamed_len = s.len_k;
    t->streamed_head = p.heads_per_tile > 1 ? t->work.head : t->work.head / p.group;
    t->streamed_heads = 1;
  } else {
    t->own_rows = clamp(s.len_k - first, 0, C::kRows);
    t->tiles = query_tiles(t->visibility, first, C::kRows, C::kBlock);
    t->streamed_len = s.len_q;
    t->streamed_head = t->work.head * p.group;
    t->streamed_heads = p.group;
  }
  const int32_t begin = kByQuery ? s.k_begin : s.q_begin;
  const auto source = [&](const Operand& o) {
    return Source{row_zero<T>(o, t->work.batch, t->streamed_head, begin), o.row_stride,
                  o.head_stride};
  };
  t->sources[kScorePhase] = source(p.streamed1);
  t->sources[kDpPhase] = source(p.streamed2);
  t->sources[kSumPhase] = source(p.values);
  return true;
}

template <class T, int kIndex, Op kOp, bool kGeneral>
__global__ void __launch_bounds__(Config<kIndex>::kThreads, Config<kIndex>::kBlocksPerSm)
    attention_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(128) char shared[];
  // In shared memory: the sums need the registers.
  static_assert(sizeof(Task) <= kTaskBytes);
  auto* task = reinterpret_cast<Task*>(shared + p.memory.task_at);
  if (warp_id() == 0) {
    Task t;
    t.found = make_task<T, Config<kIndex>, kOp>(p, &t);
    if (lane_id() == 0) *task = t;
  }
  __syncthreads();
  if (task->found) Attention<T, kIndex, kOp, kGeneral>(p, *task, shared).run();
}

}  // namespace ffpa::sm80
