// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "reference/array.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace ffpa::reference {
namespace {

uint16_t to_bfloat16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float from_bfloat16(uint16_t x) { return std::bit_cast<float>(uint32_t{x} << 16); }

uint16_t to_float16(float x) {
  const uint32_t all = std::bit_cast<uint32_t>(x), sign = all >> 16 & 0x8000;
  uint32_t bits = all & 0x7fffffff;
  if (bits > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
  if (bits >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // 65520 and above
  if (bits < 0x38800000) {  // below 2^-14: multiples of 2^-24, the spacing of floats near 0.5
    const float shifted = std::bit_cast<float>(bits) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  }
  bits += 0xfff + (bits >> 13 & 1);
  return static_cast<uint16_t>(sign | ((bits - (112u << 23)) >> 13));
}

float from_float16(uint16_t x) {
  const float sign = x & 0x8000 ? -1.0f : 1.0f;
  const int exponent = x >> 10 & 31, mantissa = x & 1023;
  if (exponent == 31) {
    return mantissa ? std::numeric_limits<float>::quiet_NaN()
                    : sign * std::numeric_limits<float>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

template <class T>
T read_as(const void* data, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * int64_t{sizeof(T)}, sizeof value);
  return value;
}

template <class T>
void write_as(void* data, int64_t index, T value) {
  std::memcpy(static_cast<char*>(data) + index * int64_t{sizeof(T)}, &value, sizeof value);
}

}  // namespace

Array::Array(std::vector<int64_t> dims, double fill) : shape(std::move(dims)) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  data.assign(static_cast<size_t>(n), fill);
}

std::string Array::index_text(int64_t flat) const {
  std::string text;
  for (size_t i = shape.size(); i-- > 0; flat /= shape[i]) {
    text = std::to_string(flat % shape[i]) + (text.empty() ? "" : ", ") + text;
  }
  return "[" + text + "]";
}

float rounded(DType dtype, float x) {
  if (dtype == DType::kBFloat16) return from_bfloat16(to_bfloat16(x));
  if (dtype == DType::kFloat16) return from_float16(to_float16(x));
  return x;
}

double unit_roundoff(DType dtype) {
  if (dtype == DType::kBFloat16) return 0x1p-8;
  if (dtype == DType::kFloat16) return 0x1p-11;
  return 0x1p-24;
}

double load(const void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kFloat32:
      return read_as<float>(data, index);
    case DType::kFloat16:
      return from_float16(read_as<uint16_t>(data, index));
    case DType::kBFloat16:
      return from_bfloat16(read_as<uint16_t>(data, index));
    case DType::kBool:
      return read_as<uint8_t>(data, index) != 0;
    case DType::kInt32:
      return read_as<int32_t>(data, index);
    case DType::kInt64:
      return static_cast<double>(read_as<int64_t>(data, index));
    case DType::kFloat64:
      return read_as<double>(data, index);
    case DType::kOther:
      break;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

void store(void* data, DType dtype, int64_t index, double value) {
  switch (dtype) {
    case DType::kFloat32:
      return write_as(data, index, static_cast<float>(value));
    case DType::kFloat16:
      return write_as(data, index, to_float16(static_cast<float>(value)));
    case DType::kBFloat16:
      return write_as(data, index, to_bfloat16(static_cast<float>(value)));
    case DType::kBool:
      return write_as(data, index, static_cast<uint8_t>(value != 0));
    case DType::kInt32:
      return write_as(data, index, static_cast<int32_t>(value));
    case DType::kInt64:
      return write_as(data, index, static_cast<int64_t>(value));
    case DType::kFloat64:
      return write_as(data, index, value);
    case DType::kOther:
      break;
  }
}

int64_t element_offset(const Tensor& t, int64_t flat) {
  int64_t offset = 0;
  for (int i = t.rank - 1; i >= 0; --i) {
    offset += flat % t.shape[i] * t.stride[i];
    flat /= t.shape[i];
  }
  return offset;
}

Array read(const Tensor& t) {
  if (!t.defined()) return {};
  Array a(std::vector<int64_t>(t.shape.begin(), t.shape.begin() + t.rank));
  for (int64_t i = 0; i < a.numel(); ++i) a.data[i] = load(t.data, t.dtype, element_offset(t, i));
  return a;
}

void write(const Tensor& t, const Array& values) {
  for (int64_t i = 0; i < values.numel(); ++i) {
    store(t.data, t.dtype, element_offset(t, i), values.data[i]);
  }
}

}  // namespace ffpa::reference
