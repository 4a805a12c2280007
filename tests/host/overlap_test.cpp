// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "core/check.h"
#include "core/tensor_checks.h"
#include "reference/array.h"

namespace ffpa {
namespace {

// Nothing is read: any address will do.
Tensor tensor_at(uintptr_t address, DType dtype, std::initializer_list<int64_t> shape,
                 std::initializer_list<int64_t> stride) {
  Tensor t = Tensor::contiguous(reinterpret_cast<void*>(address), dtype, shape);
  std::copy(stride.begin(), stride.end(), t.stride.begin());
  return t;
}

std::set<uintptr_t> bytes_of(const Tensor& t) {
  std::set<uintptr_t> bytes;
  for (int64_t i = 0; i < t.numel(); ++i) {
    for (int byte = 0; byte < dtype_bytes(t.dtype); ++byte) {
      bytes.insert(reinterpret_cast<uintptr_t>(t.data) +
                   reference::element_offset(t, i) * dtype_bytes(t.dtype) + byte);
    }
  }
  return bytes;
}

TEST(Overlap, random_small_tensors_against_their_bytes) {
  std::mt19937 random(3);
  const auto draw = [&](int n) { return static_cast<int64_t>(random() % n); };
  const auto tensor = [&] {
    const DType dtype = draw(2) ? DType::kBFloat16 : DType::kFloat32;
    return tensor_at(0x10000 + 2 * draw(60), dtype, {draw(4), 1 + draw(3), 1 + draw(4)},
                     {draw(30), draw(12), draw(4)});
  };
  int overlaps = 0;
  for (int repeat = 0; repeat < 20000; ++repeat) {
    const Tensor a = tensor(), b = tensor();
    bool expected = false;
    const std::set<uintptr_t> bytes = bytes_of(a);
    for (uintptr_t byte : bytes_of(b)) expected = expected || bytes.contains(byte);
    ASSERT_EQ(tensors_overlap(a, b), expected) << "repeat " << repeat;
    ASSERT_EQ(tensors_overlap(b, a), expected) << "repeat " << repeat;
    overlaps += expected;
  }
  EXPECT_GT(overlaps, 2000);
  EXPECT_LT(overlaps, 18000);
}

TEST(Overlap, slices_of_one_buffer_do_not_overlap) {
  // [2, 100, 12 heads, 512]: q has 8 heads, k and v have 2.
  const int64_t row = 12 * 512;
  const auto slice = [&](int64_t first_head, int64_t heads) {
    return tensor_at(0x100000 + 2 * first_head * 512, DType::kBFloat16, {2, heads, 100, 512},
                     {100 * row, 512, row, 1});
  };
  const Tensor q = slice(0, 8), k = slice(8, 2), v = slice(10, 2), too_wide = slice(8, 3);
  EXPECT_FALSE(tensors_overlap(q, k));
  EXPECT_FALSE(tensors_overlap(k, v));
  EXPECT_TRUE(tensors_overlap(too_wide, v));
  EXPECT_TRUE(tensors_overlap(q, q));
}

TEST(Overlap, an_output_must_not_reach_an_element_twice) {
  const auto ok = [](std::initializer_list<int64_t> shape, std::initializer_list<int64_t> stride) {
    return check_writable("out", tensor_at(0x1000, DType::kFloat32, shape, stride)).ok();
  };
  EXPECT_TRUE(ok({2, 3, 4}, {12, 4, 1}));
  EXPECT_TRUE(ok({2, 3, 4}, {4, 8, 1}));
  EXPECT_TRUE(ok({2, 1, 4}, {4, 0, 1}));
  EXPECT_TRUE(ok({0, 3, 4}, {0, 0, 1}));
  EXPECT_FALSE(ok({2, 3, 4}, {0, 4, 1}));
  EXPECT_FALSE(ok({2, 3, 4}, {12, 3, 1}));
  EXPECT_FALSE(ok({2, 3, 4}, {8, 4, 1}));
}

}  // namespace
}  // namespace ffpa
