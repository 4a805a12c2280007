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

void TransposeWords(int rows, int columns, const uint16_t* from, int64_t from_stride, uint16_t* to,
                    int64_t to_stride) {
  for (int c = 0; c < columns; c += 8) {
    for (int r = 0; r < rows; r += 8) {
      Transpose8x8(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
    }
  }
}

void PackTransposed(int rows, int dwords, int padded, const uint32_t* from, int64_t stride,
                    uint32_t* to) {
  for (int g = 0; g < rows; g += kPackColumns, to += int64_t{padded} * kPackColumns) {
    const uint32_t* block = from + g * stride;
    const int count = HWY_MIN(kPackColumns, rows - g);
    const int whole = count - count % 4, whole_dwords = dwords - dwords % 4;
    for (int k = 0; k < whole_dwords; k += 4) {
      for (int r = 0; r < whole; r += 4) {
        Transpose4x4(block + r * stride + k, stride, to + k * kPackColumns + r, kPackColumns);
      }
    }
    for (int k = 0; k < padded; ++k) {  // what no 4x4 block covered
      for (int r = k < whole_dwords ? whole : 0; r < kPackColumns; ++r) {
        to[k * kPackColumns + r] = r < count && k < dwords ? block[r * stride + k] : 0;
      }
    }
  }
}

void PackRowsF32(int rows, int columns, const float* from, int64_t stride, float* to) {
  for (int c = 0; c < columns; c += kPackColumns, to += int64_t{rows} * kPackColumns) {
    const int count = HWY_MIN(kPackColumns, columns - c);
    for (int k = 0; k < rows; ++k) {
      const float* source = from + k * stride + c;
      float* row = to + int64_t{k} * kPackColumns;
      if (count == kPackColumns) {
        for (int i = 0; i < kPackColumns; i += kLanes) {
          hn::StoreU(hn::LoadU(kF, source + i), kF, row + i);
        }
      } else {
        for (int i = 0; i < kPackColumns; ++i) row[i] = i < count ? source[i] : 0;
      }
    }
  }
}

HWY_INLINE void InterleaveRows(const uint16_t* even, const uint16_t* odd, uint16_t* to) {
  const Words8 d;
  for (int i = 0; i < kPackColumns; i += 8) {
    const auto e = hn::LoadU(d, even + i), o = hn::LoadU(d, odd + i);
    hn::StoreU(hn::InterleaveLower(d, e, o), d, to + 2 * i);
    hn::StoreU(hn::InterleaveUpper(d, e, o), d, to + 2 * i + 8);
  }
}

void PackRowsBF16(int rows, int padded_rows, int columns, const uint16_t* from, int64_t stride,
                  uint16_t* to) {
  for (int c = 0; c < columns; c += kPackColumns) {
    const int count = HWY_MIN(kPackColumns, columns - c);
    for (int k = 0; k < padded_rows; k += 2, to += 2 * kPackColumns) {
      const uint16_t* source = from + k * stride + c;
      if (count == kPackColumns && k + 2 <= rows) {
        InterleaveRows(source, source + stride, to);
        continue;
      }
      for (int i = 0; i < kPackColumns; ++i) {
        to[2 * i] = i < count && k < rows ? source[i] : 0;
        to[2 * i + 1] = i < count && k + 1 < rows ? source[stride + i] : 0;
      }
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

// ---- rows of scores; n is a multiple of 16 ------------------------------------------------------

float ScaleRow(int n, float scale, float* s) {
  const Vec factor = hn::Set(kF, scale);
  Vec most = hn::Set(kF, -std::numeric_limits<float>::infinity());
  for (int i = 0; i < n; i += kLanes) {
    const Vec x = hn::Mul(hn::LoadU(kF, s + i), factor);
    hn::StoreU(x, kF, s + i);
    most = hn::Max(most, x);
  }
  return hn::GetLane(hn::MaxOfLanes(kF, most));
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
  Vec most = hn::Set(kF, -std::numeric_limits<float>::infinity());
  for (int i = 0; i < n; i += kLanes) most = hn::Max(most, hn::LoadU(kF, s + i));
  return hn::GetLane(hn::MaxOfLanes(kF, most));
}

float ExpRow(int n, float max, float* s) {
  const Vec shift = hn::Set(kF, max);
  Vec sum = hn::Zero(kF);
  for (int i = 0; i < n; i += kLanes) {
    const Vec x = hn::Sub(hn::LoadU(kF, s + i), shift);
    const Vec e = hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(kF, x));
    hn::StoreU(e, kF, s + i);
    sum = hn::Add(sum, e);
  }
  return hn::GetLane(hn::SumOfLanes(kF, sum));
}

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

void GradientRow(int n, const float* p, const float* dp, float delta, float* ds) {
  const Vec shift = hn::Set(kF, delta);
  for (int i = 0; i < n; i += kLanes) {
    const Vec x = hn::LoadU(kF, p + i);
    const Vec g = hn::Mul(x, hn::Sub(hn::LoadU(kF, dp + i), shift));
    hn::StoreU(hn::IfThenZeroElse(hn::Eq(x, hn::Zero(kF)), g), kF, ds + i);
  }
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
HWY_EXPORT(TransposeWords);
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
HWY_EXPORT(ExpRow);
HWY_EXPORT(MultiplyRow);
HWY_EXPORT(DotRow);
HWY_EXPORT(GradientRow);
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
float scale_row(int n, float scale, float* s) {
  return HWY_DYNAMIC_DISPATCH(ScaleRow)(n, scale, s);
}
void softcap_row(int n, float scale, float cap, float* s) {
  HWY_DYNAMIC_DISPATCH(SoftcapRow)(n, scale, cap, s);
}
float max_row(int n, const float* s) { return HWY_DYNAMIC_DISPATCH(MaxRow)(n, s); }
float exp_row(int n, float max, float* s) { return HWY_DYNAMIC_DISPATCH(ExpRow)(n, max, s); }
void multiply_row(int n, float factor, float* x) {
  HWY_DYNAMIC_DISPATCH(MultiplyRow)(n, factor, x);
}
float dot_row(int n, const float* a, const float* b) {
  return HWY_DYNAMIC_DISPATCH(DotRow)(n, a, b);
}
void gradient_row(int n, const float* p, const float* dp, float delta, float* ds) {
  HWY_DYNAMIC_DISPATCH(GradientRow)(n, p, dp, delta, ds);
}
void transpose(int rows, int columns, const float* from, int64_t from_stride, float* to,
               int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(TransposeDwords)
  (rows, columns, reinterpret_cast<const uint32_t*>(from), from_stride,
   reinterpret_cast<uint32_t*>(to), to_stride);
}
void transpose(int rows, int columns, const Bits16* from, int64_t from_stride, Bits16* to,
               int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(TransposeWords)(rows, columns, from, from_stride, to, to_stride);
}
bool has_non_finite(int n, const float* x) { return HWY_DYNAMIC_DISPATCH(HasNonFinite)(n, x); }
bool has_non_finite_bf16(int n, const Bits16* x) {
  return HWY_DYNAMIC_DISPATCH(HasNonFiniteBF16)(n, x);
}

}  // namespace ffpa::cpu
#endif  // HWY_ONCE
