// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <cstddef>
#include <cstdint>

namespace ffpa::cpu {

// Hands out 64-byte aligned pieces of the workspace. From a null start it only counts: layout and
// size come from the same code.
class Carver {
 public:
  explicit Carver(void* data) : start_(static_cast<char*>(data)) {}

  template <class T>
  T* take(int64_t count) {
    const size_t at = used_;
    used_ += (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64;
    return start_ ? reinterpret_cast<T*>(start_ + at) : nullptr;
  }
  size_t used() const { return used_; }

 private:
  char* start_;
  size_t used_ = 0;
};

}  // namespace ffpa::cpu
