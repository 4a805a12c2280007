// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Products on AMX tiles. A float32 operand is the sum of three bfloat16 numbers, a float16 one of
// two, each rounding what the ones before leave: a = a0 + a1 + a2 exactly. Of the products a_i b_j
// those with i + j <= 2 are formed; the others are below 2^-24 of the product, one float32
// rounding. That is 6 AMX products where float32 arithmetic has 16 times less throughput.
//
// Panels are tiles of 1 KiB, [kept / 16][summed / 32][terms]. A left tile is [16 rows][32 k], a
// right one [16 pairs of k][16 columns][2].
#include <immintrin.h>

#include <algorithm>

#include "cpu/matmul.h"

#define FFPA_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c")))
#define FFPA_AMX __attribute__((target("amx-tile,amx-bf16")))
#define FFPA_INLINE inline __attribute__((always_inline))

namespace ffpa::cpu {
namespace {

constexpr int kTile = 16, kDepth = 32, kTileBytes = 1024;
static_assert(kBandRows == 2 * kTile);

constexpr int blocks_of(int n, int unit) { return (n + unit - 1) / unit; }

// The bfloat16 terms of 32 numbers, one vector a term.
template <int kTerms>
struct Terms {
  __m512i term[kTerms];
};

FFPA_AVX512 FFPA_INLINE __mmask32 first(int n) {
  return n >= 32 ? ~__mmask32{0} : (__mmask32{1} << n) - 1;
}

template <int kTerms>
FFPA_AVX512 FFPA_INLINE Terms<kTerms> split(__m512 low, __m512 high) {
  Terms<kTerms> result;
  for (int t = 0; t < kTerms; ++t) {
    const __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh(high, low);
    result.term[t] = rounded;
    if (t + 1 < kTerms) {
      const __m512i lower = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(rounded));
      const __m512i upper = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(rounded, 1));
      low = _mm512_sub_ps(low, _mm512_castsi512_ps(_mm512_slli_epi32(lower, 16)));
      high = _mm512_sub_ps(high, _mm512_castsi512_ps(_mm512_slli_epi32(upper, 16)));
    }
  }
  return result;
}

FFPA_AVX512 FFPA_INLINE __m512 load16(const float* p, __mmask16 mask) {
  return _mm512_maskz_loadu_ps(mask, p);
}
struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};
FFPA_AVX512 FFPA_INLINE __m512 load16(const Half* p, __mmask16 mask) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
}

// Elements [0, valid) of a row, zeros behind.
template <int kTerms, class T>
FFPA_AVX512 FFPA_INLINE Terms<kTerms> load32(const T* p, int valid) {
  const __mmask32 mask = first(valid);
  const __m512 low = load16(p, static_cast<__mmask16>(mask));
  const __mmask16 rest = static_cast<__mmask16>(mask >> 16);
  const __m512 high = rest ? load16(p + 16, rest) : _mm512_setzero_ps();
  return split<kTerms>(low, high);
}
template <int kTerms>
FFPA_AVX512 FFPA_INLINE Terms<kTerms> load32(const Brain* p, int valid) {
  static_assert(kTerms == 1);
  return {{_mm512_maskz_loadu_epi16(first(valid), p)}};
}

// 16 elements of two rows, side by side: pairs (even[i], odd[i]).
template <int kTerms, class T>
FFPA_AVX512 FFPA_INLINE Terms<kTerms> load_pairs(const T* even, const T* odd, int valid) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __mmask16 mask = static_cast<__mmask16>(first(std::min(valid, 16)));
  Terms<kTerms> result;
  if constexpr (std::is_same_v<T, Brain>) {
    const __m256i low = even ? _mm256_maskz_loadu_epi16(mask, even) : _mm256_setzero_si256();
    const __m256i high = odd ? _mm256_maskz_loadu_epi16(mask, odd) : _mm256_setzero_si256();
    result.term[0] = _mm512_or_si512(_mm512_cvtepu16_epi32(low),
                                     _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
  } else {
    const __m512 low = even ? load16(even, mask) : _mm512_setzero_ps();
    const __m512 high = odd ? load16(odd, mask) : _mm512_setzero_ps();
    result = split<kTerms>(low, high);
    for (int t = 0; t < kTerms; ++t) {
      result.term[t] = _mm512_permutexvar_epi16(order, result.term[t]);
    }
  }
  return result;
}

// 16 x 16 dwords.
FFPA_AVX512 FFPA_INLINE void transpose(__m512i r[16]) {
  __m512i a[16];
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    a[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    a[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    a[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    a[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 8; ++i) {
    r[i] = _mm512_shuffle_i32x4(a[i], a[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(a[i], a[i + 8], 0xdd);
  }
}

template <int kTerms>
FFPA_AVX512 FFPA_INLINE void store_tile(__m512i (&rows)[kTerms][16], bool turn, char* tile) {
  for (int t = 0; t < kTerms; ++t) {
    if (turn) transpose(rows[t]);
    for (int r = 0; r < 16; ++r) _mm512_store_si512(tile + t * kTileBytes + r * 64, rows[t][r]);
  }
}

// Rows along the kept dimension: they are the rows of left tiles, the columns of right ones.
template <int kTerms, class T>
FFPA_AVX512 void pack_kept(Side side, const RowSet& source, char* panel) {
  const int depth = blocks_of(source.columns, kDepth);
  for (int block = 0; block < blocks_of(source.count, kTile); ++block) {
    const T* rows[16];
    for (int r = 0; r < 16; ++r) {
      const int i = block * kTile + r;
      rows[r] = i < source.count ? static_cast<const T*>(source.rows[i]) : nullptr;
    }
    for (int k = 0; k < depth; ++k, panel += kTerms * kTileBytes) {
      __m512i tile[kTerms][16];
      const int valid = source.columns - k * kDepth;
      for (int r = 0; r < 16; ++r) {
        Terms<kTerms> x = {};
        if (rows[r]) x = load32<kTerms>(rows[r] + k * kDepth, valid);
        for (int t = 0; t < kTerms; ++t) tile[t][r] = x.term[t];
      }
      store_tile<kTerms>(tile, side == Side::kRight, panel);
    }
  }
}

// Rows along k: two of them make a row of pairs.
template <int kTerms, class T>
FFPA_AVX512 void pack_summed(Side side, const RowSet& source, char* panel) {
  const int depth = blocks_of(source.count, kDepth);
  for (int k = 0; k < depth; ++k) {
    const T* rows[32];
    for (int r = 0; r < 32; ++r) {
      const int i = k * kDepth + r;
      rows[r] = i < source.count ? static_cast<const T*>(source.rows[i]) : nullptr;
    }
    for (int block = 0; block < blocks_of(source.columns, kTile); ++block) {
      __m512i tile[kTerms][16];
      const int c = block * kTile;
      for (int r = 0; r < 16; ++r) {
        const T* even = rows[2 * r] ? rows[2 * r] + c : nullptr;
        const T* odd = rows[2 * r + 1] ? rows[2 * r + 1] + c : nullptr;
        const Terms<kTerms> x = load_pairs<kTerms>(even, odd, source.columns - c);
        for (int t = 0; t < kTerms; ++t) tile[t][r] = x.term[t];
      }
      store_tile<kTerms>(tile, side == Side::kLeft,
                         panel + (int64_t{block} * depth + k) * kTerms * kTileBytes);
    }
  }
}

template <int kTerms, class T>
void pack_rows(Side side, RowsAlong along, const RowSet& source, char* panel) {
  if (along == RowsAlong::kKept) {
    pack_kept<kTerms, T>(side, source, panel);
  } else {
    pack_summed<kTerms, T>(side, source, panel);
  }
}

template <int kTerms>
void pack(Side side, RowsAlong along, const RowSet& source, void* panel) {
  char* to = static_cast<char*>(panel);
  if (source.dtype == DType::kFloat32) return pack_rows<kTerms, float>(side, along, source, to);
  if constexpr (kTerms == 1) pack_rows<1, Brain>(side, along, source, to);
  if constexpr (kTerms == 2) pack_rows<2, Half>(side, along, source, to);
}

template <int kTerms>
size_t panel_bytes(int kept, int summed) {
  return size_t(blocks_of(kept, kTile)) * blocks_of(summed, kDepth) * kTerms * kTileBytes;
}

// Tiles 0..3: C [2][2]; 4, 5: left; 6, 7: right.
template <bool kTwoRows, bool kTwoColumns, bool kStart>
FFPA_AMX FFPA_INLINE void load_sums(const float* c, int64_t bytes) {
  if constexpr (kStart) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    return;
  }
  const char* at = reinterpret_cast<const char*>(c);
  _tile_loadd(0, at, bytes);
  if constexpr (kTwoColumns) _tile_loadd(1, at + 64, bytes);
  if constexpr (kTwoRows) _tile_loadd(2, at + 16 * bytes, bytes);
  if constexpr (kTwoRows && kTwoColumns) _tile_loadd(3, at + 16 * bytes + 64, bytes);
}

template <bool kTwoRows, bool kTwoColumns>
FFPA_AMX FFPA_INLINE void store_sums(float* c, int64_t bytes) {
  char* at = reinterpret_cast<char*>(c);
  _tile_stored(0, at, bytes);
  if constexpr (kTwoColumns) _tile_stored(1, at + 64, bytes);
  if constexpr (kTwoRows) _tile_stored(2, at + 16 * bytes, bytes);
  if constexpr (kTwoRows && kTwoColumns) _tile_stored(3, at + 16 * bytes + 64, bytes);
}

template <bool kTwoRows>
FFPA_AMX FFPA_INLINE void load_left(const char* tile, int64_t next) {
  // Past the first-level cache, which keeps the right tiles for the next rows.
  _tile_stream_loadd(4, tile, 64);
  if constexpr (kTwoRows) _tile_stream_loadd(5, tile + next, 64);
}
template <bool kTwoColumns>
FFPA_AMX FFPA_INLINE void load_right(const char* tile, int64_t next) {
  _tile_loadd(6, tile, 64);
  if constexpr (kTwoColumns) _tile_loadd(7, tile + next, 64);
}
template <bool kTwoRows, bool kTwoColumns>
FFPA_AMX FFPA_INLINE void multiply_tiles() {
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kTwoColumns) _tile_dpbf16ps(1, 4, 7);
  if constexpr (kTwoRows) _tile_dpbf16ps(2, 5, 6);
  if constexpr (kTwoRows && kTwoColumns) _tile_dpbf16ps(3, 5, 7);
}

// What the next blocks of C read, brought into the second-level cache a few lines at each step.
struct Ahead {
  const char* next = nullptr;
  int lines = 0;  // at each step

  FFPA_INLINE void fetch() {
    for (int i = 0; i < lines; ++i, next += 64) _mm_prefetch(next, _MM_HINT_T1);
  }
};

// One block of C, up to 32 x 32. The order of the terms changes one operand at a time.
template <int kTerms, bool kTwoRows, bool kTwoColumns, bool kStart>
FFPA_AMX void multiply_block(int depth, Range steps, const char* left, const char* right, float* c,
                             int64_t bytes, Ahead& ahead) {
  const int64_t next = int64_t{depth} * kTerms * kTileBytes;
  left += int64_t{steps.begin} * kTerms * kTileBytes;
  right += int64_t{steps.begin} * kTerms * kTileBytes;
  load_sums<kTwoRows, kTwoColumns, kStart>(c, bytes);
  for (int k = steps.begin; k < steps.end;
       ++k, left += kTerms * kTileBytes, right += kTerms * kTileBytes) {
    ahead.fetch();
    load_left<kTwoRows>(left, next);
    if constexpr (kTerms == 3) {
      load_right<kTwoColumns>(right + 2 * kTileBytes, next);
      multiply_tiles<kTwoRows, kTwoColumns>();  // 0 2
    }
    if constexpr (kTerms >= 2) {
      load_right<kTwoColumns>(right + kTileBytes, next);
      multiply_tiles<kTwoRows, kTwoColumns>();  // 0 1
      load_left<kTwoRows>(left + kTileBytes, next);
      multiply_tiles<kTwoRows, kTwoColumns>();  // 1 1
    }
    load_right<kTwoColumns>(right, next);
    multiply_tiles<kTwoRows, kTwoColumns>();  // 1 0, or 0 0 where there is one term
    if constexpr (kTerms == 3) {
      load_left<kTwoRows>(left + 2 * kTileBytes, next);
      multiply_tiles<kTwoRows, kTwoColumns>();  // 2 0
    }
    if constexpr (kTerms >= 2) {
      load_left<kTwoRows>(left, next);
      multiply_tiles<kTwoRows, kTwoColumns>();  // 0 0
    }
  }
  store_sums<kTwoRows, kTwoColumns>(c, bytes);
}

template <int kTerms, bool kStart>
FFPA_AMX void multiply_all(int rows, int columns, int depth, const char* left, const char* right,
                           float* c, int64_t stride, const Band& band) {
  const int64_t block = int64_t{depth} * kTerms * kTileBytes, bytes = stride * 4;
  // The tiles of two columns, over the steps of the blocks above each other.
  const int lines = 2 * kTerms * kTileBytes / 64 / blocks_of(rows, 2);
  for (int j = 0; j < columns; j += 2) {
    const char* b = right + j * block;
    const bool two_columns = j + 1 < columns;
    Ahead ahead;
    if (j + 2 < columns) ahead = {b + 2 * block, lines};
    for (int i = 0; i < rows; i += 2) {
      Range steps{0, depth};
      if (band.columns) {
        const Range& wanted = band.columns[i / 2];
        if (j * kTile >= wanted.end || (j + 2) * kTile <= wanted.begin) continue;
      }
      if (band.terms) {
        const Range& terms = band.terms[i / 2];
        steps = {terms.begin / kDepth, blocks_of(terms.end, kDepth)};
        if (!kStart && steps.empty()) continue;
      }
      const char* a = left + i * block;
      float* to = c + i * kTile * stride + j * kTile;
      const bool two_rows = i + 1 < rows;
      if (two_rows && two_columns) {
        multiply_block<kTerms, true, true, kStart>(depth, steps, a, b, to, bytes, ahead);
      } else if (two_rows) {
        multiply_block<kTerms, true, false, kStart>(depth, steps, a, b, to, bytes, ahead);
      } else if (two_columns) {
        multiply_block<kTerms, false, true, kStart>(depth, steps, a, b, to, bytes, ahead);
      } else {
        multiply_block<kTerms, false, false, kStart>(depth, steps, a, b, to, bytes, ahead);
      }
    }
  }
}

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes_per_row[16] = {};
  uint8_t rows[16] = {};

  TileConfig() {
    std::fill_n(bytes_per_row, 8, uint16_t{64});
    std::fill_n(rows, 8, uint8_t{kTile});
  }
};

template <int kTerms>
FFPA_AMX void multiply(int m, int n, int k, const void* left, const void* right, float* c,
                       int64_t stride, bool accumulate, const Band& band) {
  static const TileConfig config;
  _tile_loadconfig(&config);
  const int rows = blocks_of(m, kTile), columns = blocks_of(n, kTile), depth = blocks_of(k, kDepth);
  const char *a = static_cast<const char*>(left), *b = static_cast<const char*>(right);
  if (accumulate) {
    multiply_all<kTerms, false>(rows, columns, depth, a, b, c, stride, band);
  } else {
    multiply_all<kTerms, true>(rows, columns, depth, a, b, c, stride, band);
  }
  _tile_release();
}

template <int kTerms>
constexpr MatmulKernels kKernels = {kTerms == 1 ? "bfloat16" : "split bfloat16", kTerms > 1,
                                    panel_bytes<kTerms>, pack<kTerms>, multiply<kTerms>};

}  // namespace

const MatmulKernels& amx_matmul_kernels(DType precision) {
  if (precision == DType::kBFloat16) return kKernels<1>;
  return precision == DType::kFloat16 ? kKernels<2> : kKernels<3>;
}

}  // namespace ffpa::cpu
