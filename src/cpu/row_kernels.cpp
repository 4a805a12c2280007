// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/row_kernels.cpp"
#include <hwy/foreach_target.h>  // includes this file once a target: before all -inl headers
// clang-format off
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>
// clang-format on

#include <limits>

#include "cpu/load-inl.h"
#include "cpu/row_kernels.h"
#include "plan/philox.h"

HWY_BEFORE_NAMESPACE();
namespace ffpa::cpu {
namespace HWY_NAMESPACE {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

HWY_INLINE FloatVec splat(float x) { return hn::Set(kFloats, x); }

// exp(x), x <= 0, within 1.5 ulp; 0 below the normal range, NaN stays NaN. x = n ln(2) + r with
// |r| <= ln(2) / 2; the polynomial has the least relative error of its degree.
HWY_INLINE FloatVec exp_of_nonpositive(FloatVec x) {
  // 2^n is 0 at the limit. The order of Max's operands keeps NaN.
  x = hn::Max(splat(-88.03f), x);
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const FloatVec magic = splat(12582912.f);
  const FloatVec shifted = hn::MulAdd(x, splat(1.44269504f), magic);
  const FloatVec n = hn::Sub(shifted, magic);
  FloatVec r = hn::NegMulAdd(n, splat(0.693359375f), x);
  r = hn::NegMulAdd(n, splat(-2.12194440e-4f), r);
  FloatVec y = hn::MulAdd(splat(0.0013814529f), r, splat(0.008368751f));
  y = hn::MulAdd(y, r, splat(0.041668393f));
  y = hn::MulAdd(y, r, splat(0.1666652f));
  y = hn::MulAdd(y, r, splat(0.49999994f));
  y = hn::MulAdd(y, hn::Mul(r, r), hn::Add(r, splat(1.f)));
  const auto exponent = hn::Add(hn::BitCast(kInts, shifted), hn::Set(kInts, 127));
  return hn::Mul(y, hn::BitCast(kFloats, hn::ShiftLeft<23>(exponent)));
}

// Any x: infinity above 2^127.5.
HWY_INLINE FloatVec fast_exp(FloatVec x) { return exp_of_nonpositive(hn::Min(splat(89.f), x)); }

HWY_INLINE int padded(int n) { return (n + lanes() - 1) / lanes() * lanes(); }

// softcap tanh(s / softcap); `slope` (optional): its derivative, 4 e / (1 + e)^2 with
// e = exp(-2 |x|), which keeps its relative precision where tanh is almost 1.
HWY_ATTR void apply_softcap(float cap, int n, float* s, float* slope) {
  const FloatVec one = splat(1.f);
  for (int j = 0; j < n; j += lanes()) {
    const FloatVec x = hn::Div(hn::LoadU(kFloats, s + j), splat(cap));
    const FloatVec t = hn::IfThenElse(hn::IsNaN(x), x, hn::Tanh(kFloats, x));
    hn::StoreU(hn::Mul(splat(cap), t), kFloats, s + j);
    if (slope) {
      const FloatVec e = fast_exp(hn::Mul(hn::Abs(x), splat(-2.f)));
      const FloatVec sum = hn::Add(one, e);
      hn::StoreU(hn::Div(hn::Mul(splat(4.f), e), hn::Mul(sum, sum)), kFloats, slope + j);
    }
  }
}

// `distance`: of the first key to the query's own position.
HWY_ATTR void apply_alibi(float slope, float distance, int n, float* s) {
  for (int j = 0; j < n; j += lanes()) {
    const FloatVec d = hn::Sub(splat(distance), hn::Iota(kFloats, static_cast<float>(j)));
    hn::StoreU(hn::NegMulAdd(splat(slope), hn::Abs(d), hn::LoadU(kFloats, s + j)), kFloats, s + j);
  }
}

template <class T>
HWY_ATTR void add_mask(const T* mask, int64_t stride, int n, float* s) {
  T gathered[kMaxKeysPerTile];
  float values[kMaxKeysPerTile];
  if (stride != 1) {
    for (int j = 0; j < n; ++j) gathered[j] = mask[j * stride];
    mask = gathered;
  }
  load_floats(mask, n, values);
  // -inf hides the key, whatever its score is.
  for (int j = 0; j < n; ++j) s[j] = values[j] == -kInfinity ? -kInfinity : s[j] + values[j];
}

HWY_ATTR void apply_mask(const MaskView& mask, int32_t query, int32_t key, int n, float* s) {
  const int64_t at = mask.offset(0, 0, query, key), stride = mask.column_stride;
  if (mask.dtype == DType::kBool) {
    const auto* visible = static_cast<const uint8_t*>(mask.data) + at;
    for (int j = 0; j < n; ++j) s[j] = visible[j * stride] ? s[j] : -kInfinity;
    return;
  }
  with_type(mask.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    add_mask(static_cast<const T*>(mask.data) + at, stride, n, s);
  });
}

// Scores need no more than the scale: it is applied where they are read.
HWY_INLINE bool scale_only(const ScoreRules& rules) {
  return rules.scale > 0 && rules.softcap == 0 && !rules.alibi && !rules.mask.defined();
}

// Products -> scores of one row, in the order that attention.h gives; unscaled if scale_only().
// Padding becomes -inf. `slope`: the derivative of the softcap.
HWY_ATTR void score_row(const ScoreRules& rules, const ScoreTile& tile, int r, float* slope) {
  float* s = tile.data + r * tile.stride;
  const int n = tile.columns, width = padded(n);
  const int32_t query = tile.query + r, self = query + rules.visible.diagonal();
  if (!scale_only(rules)) {
    for (int j = 0; j < n; j += lanes()) {
      hn::StoreU(hn::Mul(hn::LoadU(kFloats, s + j), splat(rules.scale)), kFloats, s + j);
    }
    if (rules.softcap > 0) apply_softcap(rules.softcap, n, s, slope);
    if (rules.alibi) apply_alibi(rules.alibi_slope, static_cast<float>(self - tile.key), n, s);
    if (rules.mask.defined()) apply_mask(rules.mask, query, tile.key, n, s);
  }
  if (!tile.full) {
    const Range seen = visible_keys(rules.visible, query);
    const int begin = clamp(seen.begin - tile.key, 0, n), end = clamp(seen.end - tile.key, 0, n);
    std::fill(s, s + begin, -kInfinity);
    std::fill(s + HWY_MAX(begin, end), s + n, -kInfinity);
  }
  std::fill(s + n, s + width, -kInfinity);
}

// keep[j]: keep_scale or 0.
HWY_ATTR void keep_row(const ScoreRules& rules, int32_t query, int32_t key, int n, float* keep) {
  const uint64_t first =
      rules.first_element + static_cast<uint64_t>(query * rules.elements_per_query + key);
  for (int j = -static_cast<int>(first % 4); j < n; j += 4) {
    const PhiloxBlock block =
        philox4x32_10((first + static_cast<uint64_t>(int64_t{j})) / 4, rules.seed);
    for (int lane = 0; lane < 4; ++lane) {
      if (j + lane < 0 || j + lane >= n) continue;
      keep[j + lane] = keeps(block.lane[lane], rules.dropout_p) ? rules.keep_scale : 0.f;
    }
  }
  std::fill(keep + n, keep + padded(n), 0.f);
}

HWY_ATTR float row_maximum(const float* s, int n) {
  FloatVec even = splat(-kInfinity), odd = even;
  int j = 0;
  for (; j + 2 * lanes() <= padded(n); j += 2 * lanes()) {
    even = hn::Max(even, hn::LoadU(kFloats, s + j));
    odd = hn::Max(odd, hn::LoadU(kFloats, s + j + lanes()));
  }
  if (j < n) even = hn::Max(even, hn::LoadU(kFloats, s + j));
  return hn::GetLane(hn::MaxOfLanes(kFloats, hn::Max(even, odd)));
}

// s -> exp(s * scale - shift), rounded after the product too; returns the sum.
HWY_ATTR float exponentials(float* s, int n, float scale, float shift) {
  FloatVec sum = hn::Zero(kFloats);
  for (int j = 0; j < n; j += lanes()) {
    const FloatVec x = hn::Mul(hn::LoadU(kFloats, s + j), splat(scale));
    const FloatVec p = exp_of_nonpositive(hn::Sub(x, splat(shift)));
    hn::StoreU(p, kFloats, s + j);
    sum = hn::Add(sum, p);
  }
  return hn::GetLane(hn::SumOfLanes(kFloats, sum));
}

HWY_ATTR float exp_of(float x) { return hn::GetLane(fast_exp(splat(x))); }

HWY_ATTR void softmax(const ScoreRules& rules, const ScoreTile& tile, float* row_max,
                      float* row_sum, float* correction) {
  const float scale = scale_only(rules) ? rules.scale : 1.f;
  for (int r = 0; r < tile.rows; ++r) {
    score_row(rules, tile, r, nullptr);
    float* s = tile.data + r * tile.stride;
    const float old_max = row_max[r];
    const float new_max = HWY_MAX(old_max, row_maximum(s, tile.columns) * scale);
    // A row that has seen no key yet: every exponential is 0, or NaN if its score is.
    const float shift = new_max == -kInfinity ? 0.f : new_max;
    correction[r] = old_max == new_max ? 1.f : exp_of(old_max - shift);
    row_max[r] = new_max;
    row_sum[r] = row_sum[r] * correction[r] + exponentials(s, tile.columns, scale, shift);
    if (rules.dropout) {
      HWY_ALIGN float keep[kMaxKeysPerTile];
      keep_row(rules, tile.query + r, tile.key, tile.columns, keep);
      for (int j = 0; j < tile.columns; ++j) s[j] = keep[j] != 0 ? s[j] * keep[j] : 0.f;
    }
  }
}

HWY_ATTR void gradient_row(float* s, float* dp, const float* keep, const float* slope, int n,
                           float scale, float lse, float delta, float dlse, float factor) {
  for (int j = 0; j < n; j += lanes()) {
    const FloatVec x = hn::Mul(hn::LoadU(kFloats, s + j), splat(scale));
    const FloatVec p = fast_exp(hn::Sub(x, splat(lse)));
    FloatVec dropped = p, d = hn::LoadU(kFloats, dp + j);
    if (keep) {
      const FloatVec k = hn::LoadU(kFloats, keep + j);
      const FloatMask kept = hn::Ne(k, hn::Zero(kFloats));
      dropped = hn::IfThenElseZero(kept, hn::Mul(p, k));
      d = hn::IfThenElseZero(kept, hn::Mul(d, k));
    }
    const FloatMask alone = hn::Eq(p, splat(1.f));
    const FloatVec centered = hn::IfThenElse(alone, splat(dlse), hn::Sub(d, splat(delta)));
    FloatVec ds = hn::Mul(hn::Mul(p, splat(factor)), centered);
    if (slope) ds = hn::Mul(ds, hn::LoadU(kFloats, slope + j));
    // A hidden key's dp may be NaN.
    ds = hn::IfThenZeroElse(hn::Eq(p, hn::Zero(kFloats)), ds);
    hn::StoreU(dropped, kFloats, s + j);
    hn::StoreU(ds, kFloats, dp + j);
  }
}

HWY_ATTR void gradient(const ScoreRules& rules, const ScoreTile& tile, float* dp, const float* lse,
                       const float* delta, const float* dlse, GradientOf of) {
  HWY_ALIGN float slope[kMaxKeysPerTile];
  HWY_ALIGN float keep[kMaxKeysPerTile];
  const bool products = of == GradientOf::kProducts;
  const bool capped = products && rules.softcap > 0;
  for (int r = 0; r < tile.rows; ++r) {
    float *s = tile.data + r * tile.stride, *d = dp + r * tile.stride;
    if (lse[r] == -kInfinity) {  // sees no key
      std::fill(s, s + padded(tile.columns), 0.f);
      std::fill(d, d + padded(tile.columns), 0.f);
      continue;
    }
    score_row(rules, tile, r, capped ? slope : nullptr);
    if (rules.dropout) keep_row(rules, tile.query + r, tile.key, tile.columns, keep);
    gradient_row(s, d, rules.dropout ? keep : nullptr, capped ? slope : nullptr, tile.columns,
                 scale_only(rules) ? rules.scale : 1.f, lse[r], delta[r], dlse[r],
                 products ? rules.scale : 1.f);
  }
}

HWY_ATTR void store(const float* from, int n, float factor, DType dtype, void* to) {
  with_type(dtype, [&](auto* type) HWY_ATTR {
    auto* out = static_cast<decltype(type)>(to);
    int i = 0;
    for (; i + lanes() <= n; i += lanes()) {
      store_vector(hn::Mul(hn::LoadU(kFloats, from + i), splat(factor)), out + i);
    }
    if (i < n) store_some(hn::Mul(load_some(from + i, n - i), splat(factor)), n - i, out + i);
  });
}

HWY_ATTR void scale(float* row, int n, float factor) {
  for (int i = 0; i < n; ++i) row[i] *= factor;
}

HWY_ATTR void add(const float* from, int n, float* to) {
  for (int i = 0; i < n; ++i) to[i] += from[i];
}

HWY_ATTR float dot(const void* a, const void* b, DType dtype, int n) {
  float result = 0;
  with_type(dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
    FloatVec sum = hn::Zero(kFloats);
    int i = 0;
    for (; i + lanes() <= n; i += lanes()) {
      sum = hn::MulAdd(load_vector(x + i), load_vector(y + i), sum);
    }
    if (i < n) sum = hn::MulAdd(load_some(x + i, n - i), load_some(y + i, n - i), sum);
    result = hn::GetLane(hn::SumOfLanes(kFloats, sum));
  });
  return result;
}

HWY_ATTR void add_scaled(float factor, const void* row, DType dtype, int n, float* to) {
  with_type(dtype, [&](auto* type) HWY_ATTR {
    const auto* x = static_cast<std::remove_pointer_t<decltype(type)> const*>(row);
    float values[64];
    for (int i = 0; i < n; i += 64) {
      const int count = HWY_MIN(64, n - i);
      load_floats(x + i, count, values);
      for (int j = 0; j < count; ++j) to[i + j] += factor * values[j];
    }
  });
}

HWY_ATTR bool all_below(const uint16_t* x, int n, uint16_t exponent) {
  const hn::ScalableTag<uint16_t> tag;
  const int count = static_cast<int>(hn::Lanes(tag));
  const auto limit = hn::Set(tag, exponent);
  auto all_ones = hn::Eq(limit, hn::Zero(tag));  // nowhere
  int i = 0;
  for (; i + count <= n; i += count) {
    all_ones = hn::Or(all_ones, hn::Eq(hn::And(hn::LoadU(tag, x + i), limit), limit));
  }
  bool finite = hn::AllFalse(tag, all_ones);
  for (; i < n; ++i) finite &= (x[i] & exponent) != exponent;
  return finite;
}

HWY_ATTR bool all_finite(const void* row, DType dtype, int n) {
  if (dtype == DType::kBFloat16) return all_below(static_cast<const uint16_t*>(row), n, 0x7f80);
  if (dtype == DType::kFloat16) return all_below(static_cast<const uint16_t*>(row), n, 0x7c00);
  // The first float32 that rounds to infinity in bfloat16.
  const auto limit = hn::Set(kWords, 0x7f7f8000u), magnitude = hn::Set(kWords, 0x7fffffffu);
  const auto* x = static_cast<const uint32_t*>(row);
  auto largest = hn::Zero(kWords);
  int i = 0;
  for (; i + lanes() <= n; i += lanes()) {
    largest = hn::Max(largest, hn::And(hn::LoadU(kWords, x + i), magnitude));
  }
  bool finite = hn::AllTrue(kWords, hn::Lt(largest, limit));
  for (; i < n; ++i) finite &= (x[i] & 0x7fffffffu) < 0x7f7f8000u;
  return finite;
}

constexpr RowKernels kRowKernels = {softmax, gradient, store,      scale,
                                    add,     dot,      add_scaled, all_finite};

}  // namespace HWY_NAMESPACE
}  // namespace ffpa::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ffpa::cpu {

const RowKernels& row_kernels() { return FFPA_CHOOSE_TARGET(isa(), kRowKernels); }

}  // namespace ffpa::cpu
#endif
