// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// A block owns a 64 x 64 tile of the mask and visits, in a fixed order, all score tiles that it was
// added to: S and dP once more, no other product.
#include "sm80/make_params.h"
#include "sm80/mask_gradient/mask_gradient.h"
#include "sm80/tile/products.cuh"
#include "sm80/tile/scores.cuh"

namespace ffpa::sm80 {
namespace {

using C = Config<0>;  // 64 x 64 scores by 4 warps
constexpr int kTile = 64;
static_assert(C::kRows == kTile && C::kBlock == kTile);
constexpr int kPanelBytes = kTile * kPanelRowBytes;

// dmask as [batch][head][query tile][key tile]; 1 where it broadcasts.
struct MaskParams {
  Params attention;
  void* dmask;
  MaskKind kind;
  int64_t batch_stride, head_stride, row_stride, column_stride;
  int64_t batches, heads, rows, columns;
};

struct Span {
  int32_t begin, end;
};
__device__ __forceinline__ Span span(int64_t stride, int64_t index, int64_t all) {
  if (stride) return {static_cast<int32_t>(index), static_cast<int32_t>(index + 1)};
  return {0, static_cast<int32_t>(all)};
}

using Scores = float[C::kScoreM][C::kScoreN][4];

__device__ __forceinline__ int score_row(int m, int half) {
  return warp_id() / C::kScoreWarpsN * (16 * C::kScoreM) + 16 * m + 8 * half + lane_id() / 4;
}
__device__ __forceinline__ int score_column(int n) {
  return warp_id() % C::kScoreWarpsN * (8 * C::kScoreN) + 8 * n + lane_id() % 4 * 2;
}

// s = X Y^T of tiles of 64 rows, two panels of each in flight.
template <class T>
__device__ __forceinline__ void multiply(Scores& s, const RowSource<T>& x, int32_t x_first,
                                         int32_t x_valid, const RowSource<T>& y, int32_t y_first,
                                         int32_t y_valid, uint32_t shared) {
  const auto ask = [&](int i) {
    if (i * kPanel < x.width) {
      const uint32_t to = shared + i % 2 * 2 * kPanelBytes;
      copy_panel<T, kTile, C::kThreads, true>(to, x, x_first, x_valid, i * kPanel);
      copy_panel<T, kTile, C::kThreads, true>(to + kPanelBytes, y, y_first, y_valid, i * kPanel);
    }
    cp_async_commit();
  };
  for (int m = 0; m < C::kScoreM; ++m) {
    for (int n = 0; n < C::kScoreN; ++n) {
      for (int e = 0; e < 4; ++e) s[m][n][e] = 0;
    }
  }
  __syncthreads();
  ask(0);
  for (int i = 0; i * kPanel < x.width; ++i) {
    ask(i + 1);
    cp_async_wait<1>();
    __syncthreads();
    const uint32_t from = shared + i % 2 * 2 * kPanelBytes;
    add_score_product<T, C, true>(s, from, from + kPanelBytes,
                                  (min_of(kPanel, x.width - i * kPanel) + 15) / 16);
    __syncthreads();
  }
}

struct ScoreTile {
  int32_t batch, head, i0, j0;
  DeviceSequence sequence;
  Visibility visibility;
  bool full;
};

__device__ __forceinline__ float probability(const Params& p, const ScoreTile& t, float product,
                                             const Pair& at, float lse) {
  const Range seen = visible_keys(t.visibility, at.i);
  if (at.i >= t.sequence.len_q || at.j < seen.begin || at.j >= seen.end) return 0;
  const Score s =
      extra_score(p.extras, product * p.softmax_scale, at, at.i + t.visibility.diagonal());
  const float prob = lse == minus_infinity() ? 0 : exp2_approximate((s.value - lse) * kLog2e);
  return prob >= kAllWeight && !p.has_dlse ? 0 : prob;
}

// sums += P (dP - delta).
__device__ __forceinline__ void add_gradients(const Params& p, const ScoreTile& t, const Scores& s,
                                              const Scores& dp, Scores& sums) {
#pragma unroll
  for (int m = 0; m < C::kScoreM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t i = t.i0 + score_row(m, half);
      if (i >= t.sequence.len_q) continue;
      const int64_t row = t.sequence.q_begin + int64_t{i};
      const int64_t token = p.sequences.packed ? row : int64_t{t.batch} * p.sequences.seqlen_q + i;
      const float lse = p.lse.data[t.batch * p.lse.batch_stride + t.head * p.lse.head_stride +
                                   row * p.lse.row_stride];
      const float delta = p.delta[t.head * p.total_q + token];
#pragma unroll
      for (int n = 0; n < C::kScoreN; ++n) {
        const Pair at{t.batch, t.head, i, t.j0 + score_column(n)};
        const KeptPair kept = p.extras.dropout ? kept_pair(p, at, true) : KeptPair{true, true};
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const Pair one{t.batch, t.head, i, at.j + e};
          const float prob = probability(p, t, s[m][n][2 * half + e], one, lse);
          const bool keep = e ? kept.second : kept.first;
          const float grad = keep ? dp[m][n][2 * half + e] * p.extras.keep_scale : 0;
          if (prob != 0) sums[m][n][2 * half + e] += prob * (grad - delta);
        }
      }
    }
  }
}

template <class T>
__device__ __forceinline__ void store(const MaskParams& p, int64_t batch, int64_t head, int64_t row,
                                      int64_t column, float x) {
  const int64_t at =
      batch * p.batch_stride + head * p.head_stride + row * p.row_stride + column * p.column_stride;
  if (p.kind == MaskKind::kFloat32) {
    static_cast<float*>(p.dmask)[at] = x;
  } else {
    static_cast<uint16_t*>(p.dmask)[at] = static_cast<uint16_t>(pack<T>(x, 0));
  }
}

// Sums over the broadcast dimensions of a tile [64][64] in shared memory, and writes.
template <class T>
__device__ void store_tile(const MaskParams& p, int64_t batch, int64_t head, int64_t row0,
                           int64_t column0, const float* tile) {
  const bool by_row = p.row_stride != 0, by_column = p.column_stride != 0;
  const int rows =
      by_row ? static_cast<int>(min(int64_t{kTile}, p.attention.sequences.seqlen_q - row0)) : 1;
  const int columns =
      by_column ? static_cast<int>(min(int64_t{kTile}, p.attention.sequences.seqlen_k - column0))
                : 1;
  for (int x = static_cast<int>(threadIdx.x); x < rows * columns; x += C::kThreads) {
    const int r = x / columns, c = x % columns;
    float sum = 0;
    for (int i = by_row ? r : 0; i < (by_row ? r + 1 : kTile); ++i) {
      for (int j = by_column ? c : 0; j < (by_column ? c + 1 : kTile); ++j) {
        sum += tile[i * kTile + j];
      }
    }
    store<T>(p, batch, head, by_row ? row0 + r : 0, by_column ? column0 + c : 0, sum);
  }
}

template <class T>
__global__ void __launch_bounds__(C::kThreads)
    mask_gradient_kernel(const __grid_constant__ MaskParams p) {
  __shared__ __align__(128) char shared[4 * kPanelBytes];
  const Params& a = p.attention;
  const int64_t task = blockIdx.x;
  const int64_t column = task % p.columns, row = task / p.columns % p.rows;
  const int64_t head = task / p.columns / p.rows % p.heads;
  const int64_t batch = task / p.columns / p.rows / p.heads;
  Scores sums{};
  const Span batches = span(p.batch_stride, batch, a.sequences.batch);
  for (int32_t b = batches.begin; b < batches.end; ++b) {
    ScoreTile t{};
    t.batch = b;
    t.sequence = sequence_of(a.sequences, b);
    const DeviceSequence& q = t.sequence;
    t.visibility = {q.len_q, q.len_k, a.window_left, a.window_right};
    const Span heads = span(p.head_stride, head, a.heads_q);
    const Span columns = span(p.column_stride, column, ceil_div(q.len_k, kTile));
    for (t.head = heads.begin; t.head < heads.end; ++t.head) {
      const auto query = row_source<T>(a.own1, b, t.head, q.q_begin);
      const auto dout = row_source<T>(a.own2, b, t.head, q.q_begin);
      const auto key = row_source<T>(a.streamed1, b, t.head / a.group, q.k_begin);
      const auto value = row_source<T>(a.streamed2, b, t.head / a.group, q.k_begin);
      for (int32_t j = columns.begin; j < columns.end; ++j) {
        t.j0 = j * kTile;
        const TileRange seen = query_tiles(t.visibility, t.j0, kTile, kTile);
        const Span rows = span(p.row_stride, row, ceil_div(q.len_q, kTile));
        for (int32_t i = max_of(rows.begin, seen.begin); i < min_of(rows.end, seen.end); ++i) {
          t.i0 = i * kTile;
          Scores s, dp;
          multiply<T>(s, query, t.i0, q.len_q - t.i0, key, t.j0, q.len_k - t.j0,
                      shared_address(shared));
          multiply<T>(dp, dout, t.i0, q.len_q - t.i0, value, t.j0, q.len_k - t.j0,
                      shared_address(shared));
          add_gradients(a, t, s, dp, sums);
        }
      }
    }
  }
  __syncthreads();
  auto* tile = reinterpret_cast<float*>(shared);
  static_assert(kTile * kTile * sizeof(float) <= sizeof(shared));
#pragma unroll
  for (int m = 0; m < C::kScoreM; ++m) {
#pragma unroll
    for (int n = 0; n < C::kScoreN; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        tile[score_row(m, e / 2) * kTile + score_column(n) + e % 2] = sums[m][n][e];
      }
    }
  }
  __syncthreads();
  store_tile<T>(p, batch, head, row * kTile, column * kTile, tile);
}

}  // namespace

Status launch_mask_gradient(const Problem& p, const float* delta, cudaStream_t stream) {
  MaskParams x{};
  x.attention = make_operation(p, Op::kQueryGradient).params;
  x.attention.delta = delta;
  x.dmask = p.dmask.data;
  x.kind = p.dmask.dtype == DType::kFloat32 ? MaskKind::kFloat32 : MaskKind::kFloat16;
  x.batch_stride = p.dmask.batch_stride;
  x.head_stride = p.dmask.head_stride;
  x.row_stride = p.dmask.row_stride;
  x.column_stride = p.dmask.column_stride;
  x.batches = x.batch_stride ? p.batch : 1;
  x.heads = x.head_stride ? p.heads_q : 1;
  x.rows = x.row_stride ? (p.seqlen_q + kTile - 1) / kTile : 1;
  x.columns = x.column_stride ? (p.seqlen_k + kTile - 1) / kTile : 1;
  const int64_t blocks = x.batches * x.heads * x.rows * x.columns;
  if (blocks == 0 || !p.dmask.data) return {};
  if (blocks > (int64_t{1} << 31) - 1) {
    return Status::unsupported("dmask", "at most 2^31 - 1 tiles of 64 x 64 elements",
                               std::to_string(blocks));
  }
  const auto kernel = p.dtype == DType::kFloat16 ? mask_gradient_kernel<__half>
                                                 : mask_gradient_kernel<__nv_bfloat16>;
  kernel<<<static_cast<unsigned>(blocks), C::kThreads, 0, stream>>>(x);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) return Status::runtime(cudaGetErrorString(error));
  return {};
}

}  // namespace ffpa::sm80
