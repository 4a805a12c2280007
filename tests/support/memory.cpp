// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "support/memory.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "reference/array.h"

namespace ffpa::test {
namespace {

constexpr size_t kGuard = 512, kAlignment = 256;
constexpr unsigned char kGuardByte = 0xA5;

size_t bytes_of(DType dtype, const std::vector<int64_t>& shape, const Arrangement& a) {
  int64_t elements = a.offset, innermost = shape.back() + a.row_padding;
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) {
    const bool expanded =
        std::find(a.expanded.begin(), a.expanded.end(), static_cast<int>(i)) != a.expanded.end();
    rows *= expanded ? std::min<int64_t>(shape[i], 1) : shape[i];
  }
  elements += rows * innermost;
  return static_cast<size_t>(elements * dtype_bytes(dtype));
}

}  // namespace

Buffer::Buffer(size_t bytes, size_t offset)
    : memory_(new unsigned char[bytes + 2 * kGuard + 2 * kAlignment + offset]),
      total_(bytes + 2 * kGuard + 2 * kAlignment + offset),
      bytes_(bytes) {
  std::memset(memory_.get(), kGuardByte, total_);
  const auto first = reinterpret_cast<uintptr_t>(memory_.get()) + kGuard;
  const size_t gap = (kAlignment - first % kAlignment) % kAlignment;
  data_ = reinterpret_cast<char*>(memory_.get()) + kGuard + gap + offset;
  std::memset(data_, kPoison, bytes);
}

bool Buffer::guards_intact() const {
  const auto* begin = memory_.get();
  const auto* from = reinterpret_cast<const unsigned char*>(data_);
  const auto is_guard = [](unsigned char x) { return x == kGuardByte; };
  return std::all_of(begin, from, is_guard) && std::all_of(from + bytes_, begin + total_, is_guard);
}

Block::Block(DType dtype, const std::vector<int64_t>& shape, const Arrangement& a)
    : buffer_(bytes_of(dtype, shape, a)) {
  Tensor t;
  t.dtype = dtype;
  t.rank = static_cast<int32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), t.shape.begin());
  std::vector<int> order = a.order;
  if (order.empty()) {
    order.resize(shape.size());
    std::iota(order.begin(), order.end(), 0);
  }
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const int dim = order[i];
    const bool expanded = std::find(a.expanded.begin(), a.expanded.end(), dim) != a.expanded.end();
    t.stride[dim] = expanded ? 0 : stride;
    if (!expanded) stride *= t.shape[dim];
    if (i + 1 == order.size()) stride += a.row_padding;
  }
  t.data = buffer_.data() + a.offset * dtype_bytes(dtype);
  tensors_.push_back(t);
}

std::string Block::damage_outside() const {
  if (!buffer_.guards_intact()) return "guard bytes around it were overwritten";
  std::vector<bool> inside(buffer_.bytes());
  for (const Tensor& t : tensors_) {
    const auto first = static_cast<size_t>(static_cast<char*>(t.data) - buffer_.data());
    for (int64_t i = 0; i < t.numel(); ++i) {
      const size_t at = first + static_cast<size_t>(reference::element_offset(t, i)) *
                                    static_cast<size_t>(dtype_bytes(t.dtype));
      for (int byte = 0; byte < dtype_bytes(t.dtype); ++byte) inside[at + byte] = true;
    }
  }
  for (size_t i = 0; i < inside.size(); ++i) {
    if (!inside[i] && static_cast<unsigned char>(buffer_.data()[i]) != kPoison) {
      return "byte " + std::to_string(i) + " between its rows was overwritten";
    }
  }
  return "";
}

bool Block::untouched() const {
  return buffer_.guards_intact() &&
         std::all_of(buffer_.data(), buffer_.data() + buffer_.bytes(),
                     [](char x) { return static_cast<unsigned char>(x) == kPoison; });
}

void Block::remember() { contents_.assign(buffer_.data(), buffer_.data() + buffer_.bytes()); }

bool Block::changed() const {
  return !buffer_.guards_intact() ||
         !std::equal(contents_.begin(), contents_.end(), buffer_.data());
}

void Block::poison() { std::memset(buffer_.data(), kPoison, buffer_.bytes()); }

}  // namespace ffpa::test
