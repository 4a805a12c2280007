// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "cpu/simd.h"

// Compiled once per instruction set below. The two left out gain nothing here over their
// neighbours.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/simd.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ffpa::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::CappedTag<float, 16>;
using Vec = hn::Vec<Floats>;
constexpr Floats kF;
constexpr int kLanes = HWY_MIN(16, HWY_MAX_BYTES / 4);

const char* Target() { return hwy::TargetName(HWY_TARGET); }

// ---- float32 matrix product -------------------------------------------------------------------

constexpr int kVectorsPerGroup = kPackColumns / kLanes;
// Accumulators [rows][vectors] fill about 3/4 of the register file (32 with AVX-512, else 16).
constexpr int kGroupsAtOnce = kLanes == 16 ? 4 : 1;
constexpr int kRowsAtOnce = kLanes >= 8 ? 6 : 3;

template <int kRows, int kGroups>
HWY_INLINE void MatmulBlock(int k, const float* HWY_RESTRICT a, int64_t lda,
                            const float* HWY_RESTRICT b, float* HWY_RESTRICT c, int64_t ldc,
                            bool accumulate) {
  constexpr int kVectors = kGroups * kVectorsPerGroup;
  Vec acc[kRows][kVectors];
  const auto at = [&](int r, int v) { return c + r * ldc + v * kLanes; };
  HWY_UNROLL(32)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(32)
    for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::Zero(kF);
  }
  const int64_t group_stride = int64_t{k} * kPackColumns;
  for (int kk = 0; kk < k; ++kk) {
    Vec row[kVectors];
    HWY_UNROLL(32)
    for (int v = 0; v < kVectors; ++v) {
      row[v] = hn::LoadU(kF, b + (v / kVectorsPerGroup) * group_stride +
                                 int64_t{kk} * kPackColumns + (v % kVectorsPerGroup) * kLanes);
    }
    HWY_UNROLL(32)
    for (int r = 0; r < kRows; ++r) {
      const Vec x = hn::Set(kF, a[r * lda + kk]);
      HWY_UNROLL(32)
      for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(x, row[v], acc[r][v]);
    }
  }
  HWY_UNROLL(32)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(32)
    for (int v = 0; v < kVectors; ++v) {
      // Added last: sums of sums keep the chains of roundings short.
      if (accumulate) acc[r][v] = hn::Add(acc[r][v], hn::LoadU(kF, at(r, v)));
      hn::StoreU(acc[r][v], kF, at(r, v));
    }
  }
}

template <int kGroups>
void MatmulColumns(int m, int k, const float* a, int64_t lda, const float* b, float* c, int64_t ldc,
                   bool accumulate) {
  int r = 0;
  for (; r + kRowsAtOnce <= m; r += kRowsAtOnce) {
    MatmulBlock<kRowsAtOnce, kGroups>(k, a + r * lda, lda, b, c + r * ldc, ldc, accumulate);
  }
  for (; r + 2 <= m; r += 2) {
    MatmulBlock<2, kGroups>(k, a + r * lda, lda, b, c + r * ldc, ldc, accumulate);
  }
  if (r < m) MatmulBlock<1, kGroups>(k, a + r * lda, lda, b, c + r * ldc, ldc, accumulate);
}

void Matmul(int m, int groups, int k, const float* a, int64_t lda, const float* b, float* c,
            int64_t ldc, bool accumulate) {
  int g = 0;
  const int64_t group_stride = int64_t{k} * kPackColumns;
  for (; g + kGroupsAtOnce <= groups; g += kGroupsAtOnce) {
    MatmulColumns<kGroupsAtOnce>(m, k, a, lda, b + g * group_stride, c + g * kPackColumns, ldc,
                                 accumulate);
  }
  for (; g < groups; ++g) {
    MatmulColumns<1>(m, k, a, lda, b + g * group_stride, c + g * kPackColumns, ldc, accumulate);
  }
}

// ---- packing and transposition ----------------------------------------------------------------

using Dwords4 = hn::Full128<uint32_t>;
using Words8 = hn::Full128<uint16_t>;

HWY_INLINE void Transpose4x4(const uint32_t* from, int64_t from_stride, uint32_t* to,
                             int64_t to_stride) {
  const Dwords4 d;
  const hn::Full128<uint64_t> d64;
  const auto r0 = hn::LoadU(d, from), r1 = hn::LoadU(d, from + from_stride);
  const auto r2 = hn::LoadU(d, from + 2 * from_stride), r3 = hn::LoadU(d, from + 3 * from_stride);
  const auto lo01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
  const auto lo23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
  const auto hi01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
  const auto hi23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, lo01, lo23)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, lo01, lo23)), d, to + to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, hi01, hi23)), d, to + 2 * to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, hi01, hi23)), d, to + 3 * to_stride);
}

HWY_INLINE void Transpose8x8(const uint16_t* from, int64_t from_stride, uint16_t* to,
                             int64_t to_stride) {
  const Words8 d;
  const Dwords4 d32;
  const hn::Full128<uint64_t> d64;
  hn::Vec<Words8> r[8];
  for (int i = 0; i < 8; ++i) r[i] = hn::LoadU(d, from + i * from_stride);
  hn::Vec<Dwords4> s[8];  // s[4h + i]: rows 2i, 2i+1, columns 4h..4h+3
  for (int i = 0; i < 4; ++i) {
    s[i] = hn::BitCast(d32, hn::InterleaveLower(d, r[2 * i], r[2 * i + 1]));
    s[4 + i] = hn::BitCast(d32, hn::InterleaveUpper(d, r[2 * i], r[2 * i + 1]));
  }
  for (int h = 0; h < 2; ++h) {
    const auto lo0 = hn::BitCast(d64, hn::InterleaveLower(d32, s[4 * h], s[4 * h + 1]));
    const auto lo1 = hn::BitCast(d64, hn::InterleaveLower(d32, s[4 * h + 2], s[4 * h + 3]));
    const auto hi0 = hn::BitCast(d64, hn::InterleaveUpper(d32, s[4 * h], s[4 * h + 1]));
    const auto hi1 = hn::BitCast(d64, hn::InterleaveUpper(d32, s[4 * h + 2], s[4 * h + 3]));
    uint16_t* row = to + 4 * h * to_stride;
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, lo0, lo1)), d, row);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, lo0, lo1)), d, row + to_stride);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, hi0, hi1)), d, row + 2 * to_stride);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, hi0, hi1)), d, row + 3 * to_stride);
  }
}

void TransposeDwords(int rows, int columns, const uint32_t* from, int64_t from_stride, uint32_t* to,
                     int64_t to_stride) {
  for (int c = 0; c < columns; c += 4) {
    for (int r = 0; r < rows; r += 4) {
      Transpose4x4(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
    }
  }
}

void TransposeToPanels(int rows, int columns, const uint16_t* from, int64_t from_stride,
                       uint16_t* to) {
  for (int c = 0; c < columns; c += 8) {
    uint16_t* panel = to + c / kPanelRows * kPanelRows * rows + c % kPanelRows * kPanelColumns;
    for (int r = 0; r < rows; r += 8) {
      Transpose8x8(from + r * from_stride + c, from_stride,
                   panel + r / kPanelColumns * kPanelStep + r % kPanelColumns, kPanelColumns);
    }
  }
}

#if HWY_TARGET == HWY_AVX3
// 16 rows of 16 dwords at once: 4x4 blocks inside the 128-bit lanes, then the lanes.
HWY_INLINE void Transpose16x16(const uint32_t* from, int64_t stride, uint32_t* to) {
  const hn::Full512<uint32_t> d;
  const hn::Full512<uint64_t> d64;
  using V = hn::Vec<decltype(d)>;
  V columns[4][4];  // [c][g]: lane L = column 4 L + c of rows 4 g .. 4 g + 3
  for (int g = 0; g < 4; ++g) {
    const uint32_t* rows = from + 4 * g * stride;
    const V r0 = hn::LoadU(d, rows), r1 = hn::LoadU(d, rows + stride);
    const V r2 = hn::LoadU(d, rows + 2 * stride), r3 = hn::LoadU(d, rows + 3 * stride);
    const auto lo01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
    const auto lo23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
    const auto hi01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
    const auto hi23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
    columns[0][g] = hn::BitCast(d, hn::InterleaveLower(d64, lo01, lo23));
    columns[1][g] = hn::BitCast(d, hn::InterleaveUpper(d64, lo01, lo23));
    columns[2][g] = hn::BitCast(d, hn::InterleaveLower(d64, hi01, hi23));
    columns[3][g] = hn::BitCast(d, hn::InterleaveUpper(d64, hi01, hi23));
  }
  for (int c = 0; c < 4; ++c) {
    const V* g = columns[c];
    const V even01 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(g[1]), g[0]);
    const V even23 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(g[3]), g[2]);
    const V odd01 = hn::OddEvenBlocks(g[1], hn::SwapAdjacentBlocks(g[0]));
    const V odd23 = hn::OddEvenBlocks(g[3], hn::SwapAdjacentBlocks(g[2]));
    hn::StoreU(hn::ConcatLowerLower(d, even23, even01), d, to + c * kPackColumns);
    hn::StoreU(hn::ConcatLowerLower(d, odd23, odd01), d, to + (4 + c) * kPackColumns);
    hn::StoreU(hn::ConcatUpperUpper(d, even23, even01), d, to + (8 + c) * kPackColumns);
    hn::StoreU(hn::ConcatUpperUpper(d, odd23, odd01), d, to + (12 + c) * kPackColumns);
  }
}
#else
HWY_INLINE void Transpose16x16(const uint32_t* from, int64_t stride, uint32_t* to) {
  for (int r = 0; r < kPackColumns; r += 4) {
    for (int k = 0; k < kPackColumns; k += 4) {
      Transpose4x4(from + r * stride + k, stride, to + k * kPackColumns + r, kPackColumns);
    }
  }
}
#endif

void PackTransposed(int rows, int dwords, int padded, const uint32_t* from, int64_t stride,
                    uint32_t* to) {
  for (int g = 0; g < rows; g += kPackColumns, to += int64_t{padded} * kPackColumns) {
    const uint32_t* block = from + g * stride;
    const int count = HWY_MIN(kPackColumns, rows - g);
    const int whole = count == kPackColumns ? dwords - dwords % 16 : 0;
    for (int k = 0; k < whole; k += 16) {
      Transpose16x16(block + k, stride, to + k * kPackColumns);
    }
    for (int k = whole; k < padded; ++k) {
      for (int r = 0; r < kPackColumns; ++r) {
        to[k * kPackColumns + r] = r < count && k < dwords ? block[r * stride + k] : 0;
      }
    }
  }
}

void PackRowsF32(int rows, int columns, const float* from, int64_t stride, float* to) {
  constexpr int kGroups = 4;  // of columns at once: whole runs of cache lines of the source
  const int64_t group = int64_t{rows} * kPackColumns;
  int c = 0;
  for (; c + kGroups * kPackColumns <= columns;
       c += kGroups * kPackColumns, to += kGroups * group) {
    for (int k = 0; k < rows; ++k) {
      const float* source = from + k * stride + c;
      for (int g = 0; g < kGroups; ++g) {
        float* row = to + g * group + int64_t{k} * kPackColumns;
        for (int i = 0; i < kPackColumns; i += kLanes) {
          hn::StoreU(hn::LoadU(kF, source + g * kPackColumns + i), kF, row + i);
        }
      }
    }
  }
  for (; c < columns; c += kPackColumns, to += group) {
    const int count = HWY_MIN(kPackColumns, columns - c);
    for (int k = 0; k < rows; ++k) {
      const float* source = from + k * stride + c;
      float* row = to + int64_t{k} * kPackColumns;
      for (int i = 0; i < kPackColumns; ++i) row[i] = i < count ? source[i] : 0;
    }
  }
}

// Pairs (even, odd) of two rows of 16.
HWY_INLINE void InterleaveRows(const uint16_t* even, const uint16_t* odd, uint16_t* to) {
  const hn::Rebind<uint32_t, Floats> d;
  const hn::Rebind<uint16_t, Floats> d16;
  for (int i = 0; i < kPackColumns; i += kLanes) {
    const auto low = hn::PromoteTo(d, hn::LoadU(d16, even + i));
    const auto high = hn::ShiftLeft<16>(hn::PromoteTo(d, hn::LoadU(d16, odd + i)));
    hn::StoreU(hn::Or(low, high), d, reinterpret_cast<uint32_t*>(to + 2 * i));
  }
}

// One group of columns from pair of rows `k` on, where rows or columns end inside.
HWY_INLINE void PackPair(int rows, int count, int k, const uint16_t* from, int64_t stride,
                         uint16_t* to) {
  for (int i = 0; i < kPackColumns; ++i) {
    to[2 * i] = i < count && k < rows ? from[k * stride + i] : 0;
    to[2 * i + 1] = i < count && k + 1 < rows ? from[(k + 1) * stride + i] : 0;
  }
}

void PackRowsBF16(int rows, int padded_rows, int columns, const uint16_t* from, int64_t stride,
                  uint16_t* to) {
  const int64_t group = int64_t{padded_rows} * kPackColumns;
  int c = 0;
  // Two groups at once: both halves of a cache line of the source.
  for (; c + 2 * kPackColumns <= columns; c += 2 * kPackColumns, to += 2 * group) {
    const int whole = rows - rows % 2;
    for (int k = 0; k < whole; k += 2) {
      const uint16_t *even = from + k * stride + c, *odd = even + stride;
      uint16_t* pair = to + k * kPackColumns;
      InterleaveRows(even, odd, pair);
      InterleaveRows(even + kPackColumns, odd + kPackColumns, pair + group);
    }
    for (int k = whole; k < padded_rows; k += 2) {
      PackPair(rows, kPackColumns, k, from + c, stride, to + k * kPackColumns);
      PackPair(rows, kPackColumns, k, from + c + kPackColumns, stride,
               to + group + k * kPackColumns);
    }
  }
  for (; c < columns; c += kPackColumns, to += group) {
    const int count = HWY_MIN(kPackColumns, columns - c);
    for (int k = 0; k < padded_rows; k += 2) {
      PackPair(rows, count, k, from + c, stride, to + k * kPackColumns);
    }
  }
}

// ---- conversions ------------------------------------------------------------------------------

// Calls f(d, i) over [0, n): whole vectors, then single elements.
template <class F>
HWY_INLINE void ForEach(int n, F f) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) f(kF, i);
  for (; i < n; ++i) f(hn::CappedTag<float, 1>(), i);
}

void FromBF16(int n, const uint16_t* from, float* to) {
  ForEach(n, [&](auto d, int i) HWY_ATTR {
    const hn::Rebind<uint16_t, decltype(d)> d16;
    const hn::Rebind<uint32_t, decltype(d)> d32;
    const auto bits = hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, from + i)));
    hn::StoreU(hn::BitCast(d, bits), d, to + i);
  });
}

void ToBF16(int n, const float* from, uint16_t* to) {
  ForEach(n, [&](auto d, int i) HWY_ATTR {
    const hn::Rebind<uint16_t, decltype(d)> d16;
    const hn::Rebind<uint32_t, decltype(d)> d32;
    const hn::Rebind<int32_t, decltype(d)> di32;
    const auto x = hn::LoadU(d, from + i);
    const auto bits = hn::BitCast(d32, x);
    const auto lsb = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1));
    const auto rounded = hn::Add(bits, hn::Add(lsb, hn::Set(d32, 0x7FFF)));
    const auto quiet = hn::Or(bits, hn::Set(d32, 0x400000));
    const auto nan = hn::RebindMask(d32, hn::IsNaN(x));
    const auto high = hn::ShiftRight<16>(hn::IfThenElse(nan, quiet, rounded));
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di32, high)), d16, to + i);
  });
}

void FromF16(int n, const uint16_t* from, float* to) {
  ForEach(n, [&](auto d, int i) HWY_ATTR {
    const hn::Rebind<hwy::float16_t, decltype(d)> d16;
    const auto* source = reinterpret_cast<const hwy::float16_t*>(from + i);
    hn::StoreU(hn::PromoteTo(d, hn::LoadU(d16, source)), d, to + i);
  });
}

void ToF16(int n, const float* from, uint16_t* to) {
  ForEach(n, [&](auto d, int i) HWY_ATTR {
    const hn::Rebind<hwy::float16_t, decltype(d)> d16;
    auto* target = reinterpret_cast<hwy::float16_t*>(to + i);
    hn::StoreU(hn::DemoteTo(d16, hn::LoadU(d, from + i)), d16, target);
  });
}

// ---- rows of scores; n is a multiple of 32
// --------------------------------------------------------

void ScaleRow(int n, float scale, float* s) {
  const Vec factor = hn::Set(kF, scale);
  for (int i = 0; i < n; i += kLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(kF, s + i), factor), kF, s + i);
  }
}

void SoftcapRow(int n, float scale, float cap, float* s) {
  const Vec factor = hn::Set(kF, scale / cap), limit = hn::Set(kF, cap);
  for (int i = 0; i < n; i += kLanes) {
    const Vec x = hn::Mul(hn::LoadU(kF, s + i), factor);
    const Vec t = hn::IfThenElse(hn::IsNaN(x), x, hn::Tanh(kF, x));
    hn::StoreU(hn::Mul(limit, t), kF, s + i);
  }
}

float MaxRow(int n, const float* s) {
  Vec most = hn::Set(kF, -std::numeric_limits<float>::infinity()), other = most;
  for (int i = 0; i < n; i += 2 * kLanes) {
    most = hn::Max(most, hn::LoadU(kF, s + i));
    other = hn::Max(other, hn::LoadU(kF, s + i + kLanes));
  }
  return hn::GetLane(hn::MaxOfLanes(kF, hn::Max(most, other)));
}

// 2^x for x up to 127, relative error 1e-7; 0 below -126; NaN stays NaN. x = n + f, |f| <= 1/2: the
// polynomial is a minimax fit of 2^f, 2^n is put together from the bits of x + kShift.
HWY_INLINE Vec Exp2(Vec x) {
  const hn::Rebind<uint32_t, Floats> d32;
  const Vec shift = hn::Set(kF, 12582912.0f + 127.0f);  // 1.5 * 2^23 + the exponent's bias
  const Vec t = hn::Add(x, shift);
  const Vec f = hn::Sub(x, hn::Sub(t, shift));
  Vec p = hn::Set(kF, 0.0001534581242594868f);
  p = hn::MulAdd(p, f, hn::Set(kF, 0.0013399930903688073f));
  p = hn::MulAdd(p, f, hn::Set(kF, 0.009618489071726799f));
  p = hn::MulAdd(p, f, hn::Set(kF, 0.05550328642129898f));
  p = hn::MulAdd(p, f, hn::Set(kF, 0.24022646248340607f));
  p = hn::MulAdd(p, f, hn::Set(kF, 0.6931471824645996f));
  p = hn::MulAdd(p, f, hn::Set(kF, 1.0f));
  const Vec power = hn::BitCast(kF, hn::ShiftLeft<23>(hn::BitCast(d32, t)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(kF, -126.0f)), hn::Mul(p, power));
}

// To bfloat16, ties away from zero: two operations where ties to even take four. Keeps NaN only
// because its payload has high bits set.
HWY_INLINE void StoreRounded(Vec x, uint16_t* to) {
  const hn::Rebind<uint16_t, Floats> d16;
  const hn::Rebind<uint32_t, Floats> d32;
  const hn::Rebind<int32_t, Floats> di32;
  const auto high = hn::ShiftRight<16>(hn::Add(hn::BitCast(d32, x), hn::Set(d32, 0x8000)));
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di32, high)), d16, to);
}

float Exp2RowF32(int n, float scale, float shift, const float* s, float* p) {
  const Vec factor = hn::Set(kF, scale), origin = hn::Set(kF, shift);
  Vec sum = hn::Zero(kF), other = sum;
  for (int i = 0; i < n; i += 2 * kLanes) {
    const Vec a = Exp2(hn::Mul(hn::Sub(hn::LoadU(kF, s + i), origin), factor));
    const Vec b = Exp2(hn::Mul(hn::Sub(hn::LoadU(kF, s + i + kLanes), origin), factor));
    hn::StoreU(a, kF, p + i);
    hn::StoreU(b, kF, p + i + kLanes);
    sum = hn::Add(sum, a);
    other = hn::Add(other, b);
  }
  return hn::GetLane(hn::SumOfLanes(kF, hn::Add(sum, other)));
}

float Exp2RowBF16(int n, float scale, float shift, const float* s, uint16_t* p) {
  const Vec factor = hn::Set(kF, scale), origin = hn::Set(kF, shift);
  Vec sum = hn::Zero(kF);
  for (int c = 0; c < n; c += kPanelColumns, p += kPanelStep) {
    for (int i = 0; i < kPanelColumns; i += kLanes) {
      const Vec x = Exp2(hn::Mul(hn::Sub(hn::LoadU(kF, s + c + i), origin), factor));
      StoreRounded(x, p + i);
      sum = hn::Add(sum, x);
    }
  }
  return hn::GetLane(hn::SumOfLanes(kF, sum));
}

struct GradientRow {
  Vec factor, origin, delta, scale;

  HWY_INLINE void operator()(const float* s, const float* dp, Vec* p, Vec* ds) const {
    *p = Exp2(hn::MulSub(hn::LoadU(kF, s), factor, origin));
    const Vec difference = hn::Mul(hn::Sub(hn::LoadU(kF, dp), delta), scale);
    *ds = hn::IfThenZeroElse(hn::Eq(*p, hn::Zero(kF)), hn::Mul(*p, difference));
  }
};

HWY_INLINE GradientRow MakeGradientRow(float scale2, float lse2, float delta, float scale) {
  return {hn::Set(kF, scale2), hn::Set(kF, lse2), hn::Set(kF, delta), hn::Set(kF, scale)};
}

void GradientRowF32(int n, float scale2, float lse2, float delta, float scale, const float* s,
                    const float* dp, float* p, float* ds) {
  const GradientRow row = MakeGradientRow(scale2, lse2, delta, scale);
  for (int i = 0; i < n; i += kLanes) {
    Vec x, g;
    row(s + i, dp + i, &x, &g);
    hn::StoreU(x, kF, p + i);
    hn::StoreU(g, kF, ds + i);
  }
}

void GradientRowBF16(int n, float scale2, float lse2, float delta, float scale, const float* s,
                     const float* dp, uint16_t* p, uint16_t* ds, uint16_t* ds_panel) {
  const GradientRow row = MakeGradientRow(scale2, lse2, delta, scale);
  for (int i = 0; i < n; i += kLanes) {
    Vec x, g;
    row(s + i, dp + i, &x, &g);
    StoreRounded(x, p + i);
    StoreRounded(g, ds + i);
    if (ds_panel) {
      StoreRounded(g, ds_panel + i / kPanelColumns * kPanelStep + i % kPanelColumns);
    }
  }
}

// ---- rows of any length
// -----------------------------------------------------------------------------

void MultiplyRow(int n, float factor, float* x) {
  ForEach(n, [&](auto d, int i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor)), d, x + i);
  });
}

float DotRow(int n, const float* a, const float* b) {
  Vec sum = hn::Zero(kF);
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    sum = hn::MulAdd(hn::LoadU(kF, a + i), hn::LoadU(kF, b + i), sum);
  }
  float total = hn::GetLane(hn::SumOfLanes(kF, sum));
  for (; i < n; ++i) total += a[i] * b[i];
  return total;
}

bool HasNonFinite(int n, const float* x) {
  bool found = false;
  ForEach(n, [&](auto d, int i) HWY_ATTR {
    const auto v = hn::LoadU(d, x + i);
    found |= !hn::AllTrue(d, hn::Eq(hn::Sub(v, v), hn::Zero(d)));
  });
  return found;
}

bool HasNonFiniteBF16(int n, const uint16_t* x) {
  const hn::CappedTag<uint16_t, 32> d;
  const auto exponent = hn::Set(d, 0x7F80);
  auto found = hn::Zero(d);
  const int lanes = static_cast<int>(hn::Lanes(d));
  int i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto all_ones = hn::Eq(hn::And(hn::LoadU(d, x + i), exponent), exponent);
    found = hn::Or(found, hn::VecFromMask(d, all_ones));
  }
  bool any = !hn::AllTrue(d, hn::Eq(found, hn::Zero(d)));
  for (; i < n; ++i) any |= (x[i] & 0x7F80) == 0x7F80;
  return any;
}

}  // namespace HWY_NAMESPACE
}  // namespace ffpa::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ffpa::cpu {

HWY_EXPORT(Target);
HWY_EXPORT(Matmul);
HWY_EXPORT(TransposeDwords);
HWY_EXPORT(TransposeToPanels);
HWY_EXPORT(PackTransposed);
HWY_EXPORT(PackRowsF32);
HWY_EXPORT(PackRowsBF16);
HWY_EXPORT(FromBF16);
HWY_EXPORT(ToBF16);
HWY_EXPORT(FromF16);
HWY_EXPORT(ToF16);
HWY_EXPORT(ScaleRow);
HWY_EXPORT(SoftcapRow);
HWY_EXPORT(MaxRow);
HWY_EXPORT(Exp2RowF32);
HWY_EXPORT(Exp2RowBF16);
HWY_EXPORT(GradientRowF32);
HWY_EXPORT(GradientRowBF16);
HWY_EXPORT(MultiplyRow);
HWY_EXPORT(DotRow);
HWY_EXPORT(HasNonFinite);
HWY_EXPORT(HasNonFiniteBF16);

const char* simd_target() { return HWY_DYNAMIC_DISPATCH(Target)(); }

void matmul_f32(int m, int groups, int k, const float* a, int64_t lda, const float* b, float* c,
                int64_t ldc, bool accumulate) {
  HWY_DYNAMIC_DISPATCH(Matmul)(m, groups, k, a, lda, b, c, ldc, accumulate);
}
void pack_transposed(int rows, int dwords, int padded, const uint32_t* from, int64_t stride,
                     uint32_t* to) {
  HWY_DYNAMIC_DISPATCH(PackTransposed)(rows, dwords, padded, from, stride, to);
}
void pack_rows(int rows, int columns, const float* from, int64_t stride, float* to) {
  HWY_DYNAMIC_DISPATCH(PackRowsF32)(rows, columns, from, stride, to);
}
void pack_rows(int rows, int padded_rows, int columns, const Bits16* from, int64_t stride,
               Bits16* to) {
  HWY_DYNAMIC_DISPATCH(PackRowsBF16)(rows, padded_rows, columns, from, stride, to);
}
void bf16_to_f32(int n, const Bits16* from, float* to) {
  HWY_DYNAMIC_DISPATCH(FromBF16)(n, from, to);
}
void f16_to_f32(int n, const Bits16* from, float* to) {
  HWY_DYNAMIC_DISPATCH(FromF16)(n, from, to);
}
void f32_to_bf16(int n, const float* from, Bits16* to) {
  HWY_DYNAMIC_DISPATCH(ToBF16)(n, from, to);
}
void f32_to_f16(int n, const float* from, Bits16* to) { HWY_DYNAMIC_DISPATCH(ToF16)(n, from, to); }
void scale_row(int n, float scale, float* s) { HWY_DYNAMIC_DISPATCH(ScaleRow)(n, scale, s); }
void softcap_row(int n, float scale, float cap, float* s) {
  HWY_DYNAMIC_DISPATCH(SoftcapRow)(n, scale, cap, s);
}
float max_row(int n, const float* s) { return HWY_DYNAMIC_DISPATCH(MaxRow)(n, s); }
float exp2_row(int n, float scale, float shift, const float* s, float* p) {
  return HWY_DYNAMIC_DISPATCH(Exp2RowF32)(n, scale, shift, s, p);
}
float exp2_row(int n, float scale, float shift, const float* s, Bits16* p) {
  return HWY_DYNAMIC_DISPATCH(Exp2RowBF16)(n, scale, shift, s, p);
}
void gradient_row(int n, float scale2, float lse2, float delta, float scale, const float* s,
                  const float* dp, float* p, float* ds) {
  HWY_DYNAMIC_DISPATCH(GradientRowF32)(n, scale2, lse2, delta, scale, s, dp, p, ds);
}
void gradient_row(int n, float scale2, float lse2, float delta, float scale, const float* s,
                  const float* dp, Bits16* p, Bits16* ds, Bits16* ds_panel) {
  HWY_DYNAMIC_DISPATCH(GradientRowBF16)
  (n, scale2, lse2, delta, scale, s, dp, p, ds, ds_panel);
}
void multiply_row(int n, float factor, float* x) {
  HWY_DYNAMIC_DISPATCH(MultiplyRow)(n, factor, x);
}
float dot_row(int n, const float* a, const float* b) {
  return HWY_DYNAMIC_DISPATCH(DotRow)(n, a, b);
}
void transpose(int rows, int columns, const float* from, int64_t from_stride, float* to,
               int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(TransposeDwords)
  (rows, columns, reinterpret_cast<const uint32_t*>(from), from_stride,
   reinterpret_cast<uint32_t*>(to), to_stride);
}
void transpose_to_panels(int rows, int columns, const Bits16* from, int64_t from_stride,
                         Bits16* to) {
  HWY_DYNAMIC_DISPATCH(TransposeToPanels)(rows, columns, from, from_stride, to);
}
bool has_non_finite(int n, const float* x) { return HWY_DYNAMIC_DISPATCH(HasNonFinite)(n, x); }
bool has_non_finite_bf16(int n, const Bits16* x) {
  return HWY_DYNAMIC_DISPATCH(HasNonFiniteBF16)(n, x);
}

}  // namespace ffpa::cpu
#endif  // HWY_ONCE
