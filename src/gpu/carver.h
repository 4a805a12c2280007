// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <cstdint>

namespace ffpa {

// Hands out 256-byte aligned pieces of the workspace. From a null start it only counts.
class Carver {
 public:
  explicit Carver(void* data) : start_(static_cast<char*>(data)) {}

  template <class T>
  T* take(int64_t count) {
    const int64_t at = used_;
    used_ += (count * static_cast<int64_t>(sizeof(T)) + 255) / 256 * 256;
    return start_ ? reinterpret_cast<T*>(start_ + at) : nullptr;
  }
  int64_t used() const { return used_; }

 private:
  char* start_;
  int64_t used_ = 0;
};

}  // namespace ffpa
