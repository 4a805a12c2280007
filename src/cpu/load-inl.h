// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Rows of any element type as float32 vectors, and back. Compiled once per instruction set.
#if defined(FFPA_CPU_LOAD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FFPA_CPU_LOAD_INL_H
#undef FFPA_CPU_LOAD_INL_H
#else
#define FFPA_CPU_LOAD_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ffpa/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace ffpa::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::ScalableTag<float> kFloats;
constexpr hn::Rebind<int32_t, decltype(kFloats)> kInts;
constexpr hn::Rebind<uint32_t, decltype(kFloats)> kWords;
constexpr hn::Rebind<uint16_t, decltype(kFloats)> kHalves;
using FloatVec = hn::Vec<decltype(kFloats)>;
using FloatMask = hn::Mask<decltype(kFloats)>;

HWY_INLINE int lanes() { return static_cast<int>(hn::Lanes(kFloats)); }

// Element types in memory, besides float.
struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};

HWY_INLINE FloatVec load_vector(const float* p) { return hn::LoadU(kFloats, p); }
HWY_INLINE FloatVec load_vector(const Brain* p) {
  const auto bits = hn::LoadU(kHalves, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(kFloats, hn::ShiftLeft<16>(hn::PromoteTo(kWords, bits)));
}
HWY_INLINE FloatVec load_vector(const Half* p) {
  const hn::Rebind<hwy::float16_t, decltype(kFloats)> tag;
  return hn::PromoteTo(kFloats, hn::LoadU(tag, reinterpret_cast<const hwy::float16_t*>(p)));
}

HWY_INLINE void store_vector(FloatVec x, float* p) { hn::StoreU(x, kFloats, p); }
// To nearest, ties to even; NaN stays NaN.
HWY_INLINE void store_vector(FloatVec x, Brain* p) {
  const auto bits = hn::BitCast(kWords, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(kWords, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(kWords, 0x7fffu)));
  const auto is_nan = hn::RebindMask(kWords, hn::IsNaN(x));
  const auto chosen = hn::IfThenElse(is_nan, hn::Set(kWords, 0x7fc00000u), rounded);
  const auto narrow = hn::DemoteTo(kHalves, hn::BitCast(kInts, hn::ShiftRight<16>(chosen)));
  hn::StoreU(narrow, kHalves, reinterpret_cast<uint16_t*>(p));
}
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
HWY_INLINE void store_vector(FloatVec x, Half* p) {
  const hn::Rebind<hwy::float16_t, decltype(kFloats)> tag;
  hn::StoreU(hn::DemoteTo(tag, x), tag, reinterpret_cast<hwy::float16_t*>(p));
}
#else
// Without the instruction, Highway rounds towards zero.
HWY_INLINE void store_vector(FloatVec x, Half* p) {
  const auto bits = hn::BitCast(kWords, x), size = hn::And(bits, hn::Set(kWords, 0x7fffffffu));
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(kWords, 0x8000u));
  const auto odd = hn::And(hn::ShiftRight<13>(size), hn::Set(kWords, 1u));
  const auto rebased = hn::Sub(size, hn::Set(kWords, 112u << 23));
  const auto normal = hn::ShiftRight<13>(hn::Add(rebased, hn::Add(odd, hn::Set(kWords, 0xfffu))));
  // Below 2^-14 the spacing is 2^-24, that of float32 near 0.5.
  const auto shifted = hn::Add(hn::BitCast(kFloats, size), hn::Set(kFloats, 0.5f));
  const auto tiny = hn::Sub(hn::BitCast(kWords, shifted), hn::Set(kWords, 0x3f000000u));
  auto half = hn::IfThenElse(hn::Lt(size, hn::Set(kWords, 0x38800000u)), tiny, normal);
  half = hn::IfThenElse(hn::Lt(size, hn::Set(kWords, 0x477ff000u)), half, hn::Set(kWords, 0x7c00u));
  half = hn::IfThenElse(hn::Gt(size, hn::Set(kWords, 0x7f800000u)), hn::Set(kWords, 0x7e00u), half);
  const auto narrow = hn::DemoteTo(kHalves, hn::BitCast(kInts, hn::Or(half, sign)));
  hn::StoreU(narrow, kHalves, reinterpret_cast<uint16_t*>(p));
}
#endif

// The first n < lanes() elements, the others zero.
template <class T>
HWY_INLINE FloatVec load_some(const T* p, int n) {
  T buffer[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(buffer, p, n * sizeof(T));
  return load_vector(buffer);
}
template <class T>
HWY_INLINE void store_some(FloatVec x, int n, T* p) {
  T buffer[HWY_MAX_BYTES / sizeof(float)];
  store_vector(x, buffer);
  std::memcpy(p, buffer, n * sizeof(T));
}

template <class T>
HWY_INLINE void load_floats(const T* from, int n, float* to) {
  int i = 0;
  for (; i + lanes() <= n; i += lanes()) hn::StoreU(load_vector(from + i), kFloats, to + i);
  if (i < n) store_some(load_some(from + i, n - i), n - i, to + i);
}

// Calls f with a null pointer of the element type.
template <class F>
HWY_INLINE void with_type(DType dtype, const F& f) {
  if (dtype == DType::kFloat32) f(static_cast<float*>(nullptr));
  if (dtype == DType::kFloat16) f(static_cast<Half*>(nullptr));
  if (dtype == DType::kBFloat16) f(static_cast<Brain*>(nullptr));
}

}  // namespace HWY_NAMESPACE
}  // namespace ffpa::cpu
HWY_AFTER_NAMESPACE();

#endif
