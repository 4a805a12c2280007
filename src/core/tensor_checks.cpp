// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "core/tensor_checks.h"

#include <algorithm>

namespace ffpa {
namespace {

const char* device_name(DeviceType device) {
  switch (device) {
    case DeviceType::kCpu:
      return "cpu";
    case DeviceType::kCuda:
      return "cuda";
    case DeviceType::kOther:
      break;
  }
  return "another device";
}

std::string device_text(const Tensor& t) {
  std::string text = device_name(t.device);
  if (t.device == DeviceType::kCuda) text += ":" + std::to_string(t.device_index);
  return text;
}

std::string stride_text(const Tensor& t) {
  return "strides " + shape_text(Shape(t.stride.begin(), t.stride.begin() + t.rank)) +
         " for shape " + shape_text(shape_of(t));
}

}  // namespace

std::string shape_text(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i ? ", " : "") + std::to_string(shape[i]);
  }
  return text + "]";
}

Shape shape_of(const Tensor& t) {
  const int rank = std::clamp(t.rank, 0, Tensor::kMaxRank);
  return Shape(t.shape.begin(), t.shape.begin() + rank);
}

std::string dtype_list(std::initializer_list<DType> dtypes) {
  std::string text;
  size_t i = 0;
  for (DType d : dtypes) {
    if (i > 0) text += i + 1 == dtypes.size() ? " or " : ", ";
    text += dtype_name(d);
    ++i;
  }
  return text;
}

Status check_dtype(const char* name, const Tensor& t, std::initializer_list<DType> dtypes) {
  if (std::find(dtypes.begin(), dtypes.end(), t.dtype) != dtypes.end()) return {};
  return Status::invalid_type(name, "dtype " + dtype_list(dtypes), dtype_name(t.dtype));
}

Status check_device(const char* name, const Tensor& t, const Tensor& like) {
  const bool same = t.device == like.device &&
                    (t.device == DeviceType::kCpu || t.device_index == like.device_index);
  if (same) return {};
  return Status::invalid_value(name, "a tensor on " + device_text(like) + ", as q",
                               "one on " + device_text(t));
}

Status check_shape(const char* name, const Tensor& t, const Shape& shape, const char* meaning) {
  if (shape_of(t) == shape) return {};
  return Status::invalid_value(name, "shape " + shape_text(shape) + " = " + meaning,
                               shape_text(shape_of(t)));
}

Status check_layout(const char* name, const Tensor& t) {
  if (t.rank < 1 || t.rank > Tensor::kMaxRank) {
    return Status::invalid_value(name, "1 to 4 dimensions", std::to_string(t.rank));
  }
  __extension__ __int128 bytes = dtype_bytes(t.dtype);
  for (int i = 0; i < t.rank; ++i) {
    if (t.shape[i] < 0) {
      return Status::invalid_value(name, "sizes of at least 0", shape_text(shape_of(t)));
    }
    if (t.stride[i] < 0 && t.shape[i] > 1) {
      return Status::invalid_value(name, "strides of at least 0", stride_text(t));
    }
    if (t.shape[i] > 1) {
      bytes += static_cast<__int128>(t.shape[i] - 1) * t.stride[i] * dtype_bytes(t.dtype);
    }
    if (bytes > static_cast<__int128>(1) << 62) {
      return Status::invalid_value(name, "offsets below 2^62 bytes", stride_text(t));
    }
  }
  return {};
}

Status check_unit_last_stride(const char* name, const Tensor& t) {
  if (t.shape[t.rank - 1] <= 1 || t.stride[t.rank - 1] == 1 || t.numel() == 0) return {};
  return Status::invalid_value(name, "a last stride of 1 (copy it to a contiguous tensor first)",
                               stride_text(t));
}

Status check_data(const char* name, const Tensor& t) {
  if (t.numel() == 0) return {};
  if (!t.data) return Status::invalid_value(name, "data", "a null pointer");
  if (reinterpret_cast<uintptr_t>(t.data) % dtype_bytes(t.dtype) != 0) {
    return Status::invalid_value(name, std::string("data aligned to one ") + dtype_name(t.dtype),
                                 "an address inside an element");
  }
  return {};
}

Status check_writable(const char* name, const Tensor& t) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (int i = 0; i < t.rank; ++i) {
    if (t.shape[i] > 1) dims.push_back({t.stride[i], t.shape[i]});
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;  // largest offset of the dimensions so far
  for (auto [stride, size] : dims) {
    if (stride <= reach && t.numel() > 0) {
      return Status::invalid_value(name, "an output whose elements do not share memory",
                                   stride_text(t));
    }
    reach += stride * (size - 1);
  }
  return {};
}

int64_t canonical_stride(const Tensor& t, int i) { return t.shape[i] > 1 ? t.stride[i] : 0; }

}  // namespace ffpa
