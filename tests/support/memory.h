// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Memory for test tensors: guard bytes on both sides, and NaN wherever nothing was written.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ffpa/tensor.h"

namespace ffpa::test {

// Every byte of fresh memory. 0xFFFF and 0xFFFFFFFF are NaN in all float dtypes.
inline constexpr unsigned char kPoison = 0xFF;

// `bytes` bytes, `offset` bytes after a multiple of 256.
class Buffer {
 public:
  explicit Buffer(size_t bytes, size_t offset = 0);

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  bool guards_intact() const;

 private:
  std::unique_ptr<unsigned char[]> memory_;
  size_t total_ = 0, bytes_ = 0;
  char* data_ = nullptr;
};

// How the dimensions of a tensor lie in memory.
struct Arrangement {
  std::vector<int> order;     // dimensions from the slowest to the fastest; empty: 0, 1, 2, ..
  int64_t row_padding = 0;    // elements left free after each innermost row
  int64_t offset = 0;         // elements left free before the first one
  std::vector<int> expanded;  // dimensions of stride 0
};

// One block of memory and the tensors inside it.
class Block {
 public:
  // One tensor of its own.
  Block(DType dtype, const std::vector<int64_t>& shape, const Arrangement& arrangement);
  // `bytes` of memory for tensors that are slices of it.
  explicit Block(size_t bytes) : buffer_(bytes) {}

  char* data() const { return buffer_.data(); }
  const Tensor& tensor() const { return tensors_.front(); }
  void add_slice(const Tensor& t) { tensors_.push_back(t); }

  // What memory outside the tensors, and outside the block, has suffered; empty if nothing.
  std::string damage_outside() const;
  // True iff nothing was written at all.
  bool untouched() const;
  // Remembers the contents; `changed` compares with them.
  void remember();
  bool changed() const;
  void poison();

 private:
  Buffer buffer_;
  std::vector<Tensor> tensors_;
  std::vector<char> contents_;
};

}  // namespace ffpa::test
