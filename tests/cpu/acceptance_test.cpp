// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The acceptance shapes, by their row numbers. Their structure is kept (ratios of heads, ragged and
// missing rows, alignment); lengths and heads are cut to what a float64 oracle does in a second.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "support/compare.h"

namespace ffpa::test {
namespace {

using reference::Result;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr DType kBoth[] = {DType::kFloat16, DType::kBFloat16};
constexpr DType kBf16 = DType::kBFloat16;

Case self(DType dtype, std::vector<int32_t> lengths, int64_t heads_q, int64_t heads_kv,
          int64_t head_dim, bool causal) {
  return packed_case(dtype, lengths, lengths, heads_q, heads_kv, head_dim, causal);
}

TEST(Acceptance, row_01_packed_minimum) { check_acceptance(self(kBf16, {128}, 2, 2, 512, true)); }
TEST(Acceptance, row_02_packed_128) { check_acceptance(self(kBf16, {128}, 32, 4, 512, true)); }
TEST(Acceptance, row_03_packed_512) { check_acceptance(self(kBf16, {250}, 8, 1, 512, true)); }
TEST(Acceptance, row_04_packed_2048) { check_acceptance(self(kBf16, {600}, 1, 1, 512, true)); }
TEST(Acceptance, row_05_packed_3x2048) {
  check_acceptance(self(kBf16, {150, 150, 150}, 8, 1, 512, true));
}

TEST(Acceptance, row_06_packed_ragged) {
  for (const DType dtype : kBoth) {
    for (const bool causal : {false, true}) {
      check_acceptance(self(dtype, {130, 200, 7, 260}, 2, 2, 512, causal));
    }
  }
}

TEST(Acceptance, row_07_packed_more_keys) {
  for (const bool causal : {false, true}) {
    check_acceptance(packed_case(kBf16, {64, 200, 1}, {256, 333, 500}, 1, 1, 512, causal));
  }
}

TEST(Acceptance, row_08_packed_rows_without_keys) {
  for (const bool causal : {false, true}) {
    TestCall call(packed_case(kBf16, {256, 350, 150}, {64, 129, 1}, 1, 1, 512, causal));
    const Result r = check_acceptance(call);
    if (!causal) continue;
    for (int64_t i = 0; i < 192; ++i) {
      EXPECT_EQ(r.lse.data[i], -kInf);
      for (int64_t d = 0; d < 512; ++d) {
        ASSERT_EQ(r.out.data[i * 512 + d], 0);
        ASSERT_EQ(r.dq.data[i * 512 + d], 0);
      }
    }
  }
}

TEST(Acceptance, row_09_packed_sequence_without_keys) {
  for (const bool causal : {false, true}) {
    TestCall call(packed_case(kBf16, {128, 256}, {0, 256}, 2, 2, 512, causal));
    const Result r = check_acceptance(call);
    for (int64_t x = 0; x < 128 * 2 * 512; ++x) ASSERT_EQ(r.dq.data[x], 0);
    EXPECT_EQ(r.lse.data[127], -kInf);
  }
}

TEST(Acceptance, row_11_packed_around_128) {
  for (const bool causal : {false, true}) {
    check_acceptance(self(kBf16, {1, 127, 128, 129, 255}, 2, 2, 512, causal));
  }
}

TEST(Acceptance, row_12_packed_777) { check_acceptance(self(kBf16, {777}, 1, 1, 512, true)); }

TEST(Acceptance, row_13_packed_gqa) {
  check_acceptance(self(kBf16, {127, 256}, 8, 2, 512, true));
  check_acceptance(self(kBf16, {200, 129}, 8, 1, 512, true));
}

TEST(Acceptance, row_15_packed_backward) {
  for (const bool causal : {false, true}) {
    check_acceptance(self(kBf16, {256, 80, 400}, 1, 1, 512, causal));
    check_acceptance(self(kBf16, {128, 16, 384, 50, 256}, 1, 1, 512, causal));
  }
}

TEST(Acceptance, row_17_gradient_of_lse) {
  for (const int64_t head_dim : {512, 320}) {
    Case c = self(kBf16, {100, 260}, 2, 1, head_dim, true);
    c.dlse = true;
    check_acceptance(c);
  }
}

TEST(Acceptance, row_18_packed_d320) {
  for (const DType dtype : kBoth) {
    for (const bool causal : {false, true}) {
      check_acceptance(self(dtype, {32, 17, 64}, 2, 2, 320, causal));
    }
  }
}

TEST(Acceptance, row_19_dense) {
  for (const DType dtype : kBoth) {
    for (const int64_t head_dim : {320, 384, 512}) {
      for (const bool causal : {false, true}) {
        check_acceptance(dense_case(dtype, 1, 70, 70, 8, 8, head_dim, causal));
        check_acceptance(dense_case(dtype, 1, 45, 45, 16, 4, head_dim, causal));
      }
    }
  }
}

TEST(Acceptance, row_22_dense_odd_lengths) {
  for (const bool causal : {false, true}) {
    for (const int32_t n : {65, 129, 511}) {
      check_acceptance(dense_case(kBf16, 1, n, n, n > 200 ? 1 : 4, 1, 512, causal));
    }
  }
}

TEST(Acceptance, row_23_dense_causal) {
  check_acceptance(dense_case(kBf16, 1, 256, 256, 2, 2, 512, true));
  check_acceptance(dense_case(kBf16, 1, 200, 200, 4, 2, 512, true));
  check_acceptance(dense_case(kBf16, 1, 200, 200, 2, 2, 512, true));
  check_acceptance(dense_case(kBf16, 2, 128, 128, 4, 4, 512, true));
}

TEST(Acceptance, row_24_more_keys_than_queries) {
  for (const DType dtype : kBoth) check_acceptance(dense_case(dtype, 1, 128, 320, 2, 2, 512, true));
}

TEST(Acceptance, row_25_more_queries_than_keys) {
  for (const DType dtype : kBoth) {
    TestCall call(dense_case(dtype, 1, 320, 128, 1, 1, 512, true));
    const Result r = check_acceptance(call);
    for (int64_t i = 0; i < 192; ++i) ASSERT_EQ(r.lse.data[i], -kInf);
    for (int64_t x = 0; x < 192 * 512; ++x) {
      ASSERT_EQ(r.out.data[x], 0);
      ASSERT_EQ(r.dq.data[x], 0);
    }
    EXPECT_TRUE(std::isfinite(r.lse.data[192]));
  }
}

TEST(Acceptance, row_26_dense_causal_long) {
  check_acceptance(dense_case(kBf16, 1, 256, 256, 4, 4, 512, true));
  check_acceptance(dense_case(kBf16, 1, 768, 768, 1, 1, 512, true));
}

TEST(Acceptance, row_27_dense_mqa) {
  check_acceptance(dense_case(kBf16, 1, 200, 200, 8, 1, 512, true));
  check_acceptance(dense_case(kBf16, 2, 160, 160, 4, 2, 512, true));
}

TEST(Acceptance, row_28_head_ratios) {
  for (const auto& [heads_q, heads_kv] :
       {std::pair{12, 4}, {10, 2}, {12, 2}, {28, 4}, {12, 1}, {16, 1}, {64, 1}}) {
    check_acceptance(dense_case(kBf16, 1, 75, 75, heads_q, heads_kv, 512, true));
  }
}

TEST(Acceptance, row_29_k_and_v_one_tensor) {
  Case c = dense_case(kBf16, 1, 200, 200, 4, 1, 512, true);
  c.v_is_k = true;
  check_acceptance(c);
}

TEST(Acceptance, row_30_minimum_shapes) {
  for (const DType dtype : kBoth) {
    for (const auto& [nq, nk] : {std::pair{1, 1}, {1, 64}, {64, 1}}) {
      TestCall call(dense_case(dtype, 1, nq, nk, 2, 2, 512, false));
      const Result r = check_acceptance(call);
      if (nk > 1) continue;
      EXPECT_TRUE(all_zero("dq", r.dq));
      EXPECT_TRUE(all_zero("dk", r.dk));
    }
  }
}

TEST(Acceptance, row_32_causal_cross_attention) {
  check_acceptance(dense_case(kBf16, 1, 128, 256, 8, 2, 320, true));
  check_acceptance(dense_case(kBf16, 1, 128, 512, 1, 1, 512, true));
}

TEST(Acceptance, row_34_large_head_dims) {
  for (const int64_t head_dim : {640, 768, 1024}) {
    for (const bool causal : {false, true}) {
      check_acceptance(dense_case(kBf16, 1, 130, 130, 8, 2, head_dim, causal));
    }
  }
}

TEST(Acceptance, row_35_every_small_length) {
  std::vector<int32_t> lengths(17);
  for (int32_t n = 1; n <= 17; ++n) lengths[n - 1] = n;
  for (const int32_t n : {63, 64, 65, 127, 511, 512}) lengths.push_back(n);
  for (const int32_t n : lengths) check_acceptance(dense_case(kBf16, 1, n, n, 1, 1, 512, true));
}

TEST(Acceptance, row_36_masks) {
  for (const int64_t head_dim : {320, 512}) {
    for (const Mask mask : {Mask::kBool, Mask::kFloat32, Mask::kOfInputDtype}) {
      const auto with = [&](int rank, std::vector<int> broadcast) {
        Case c = dense_case(kBf16, 2, 60, 70, 2, 1, head_dim, false);
        c.mask = mask;
        c.mask_rank = rank;
        c.mask_broadcast = std::move(broadcast);
        check_acceptance(c);
      };
      with(2, {});
      with(3, {});
      with(3, {1});
      with(4, {});
      with(4, {1});
      with(4, {1, 2});  // key padding
    }
  }
}

TEST(Acceptance, row_37_mask_gradient) {
  for (const Mask mask : {Mask::kFloat32, Mask::kOfInputDtype}) {
    const auto with = [&](int rank, std::vector<int> broadcast) {
      Case c = dense_case(kBf16, 2, 90, 110, 2, 1, 320, true);
      c.mask = mask;
      c.mask_rank = rank;
      c.mask_broadcast = std::move(broadcast);
      TestCall call(c);
      const Result r = check_acceptance(call);
      const Result exact = reference::attention(call.reference_call());
      double error = 0, size = 0;
      for (int64_t i = 0; i < r.dmask.numel(); ++i) {
        error += std::pow(r.dmask.data[i] - exact.dmask.data[i], 2);
        size += std::pow(exact.dmask.data[i], 2);
      }
      // A mask of queries shifts whole rows: its gradient is 0 but for rounding.
      if (std::find(c.mask_broadcast.begin(), c.mask_broadcast.end(), 3) ==
          c.mask_broadcast.end()) {
        EXPECT_LT(std::sqrt(error / size), 1e-2) << describe(c);
      }
    };
    with(4, {});
    with(4, {0});
    with(3, {});
    with(4, {0, 1, 2});
    with(2, {3});
  }
}

TEST(Acceptance, row_38_fully_masked_rows) {
  for (const DType dtype : kBoth) {
    for (const Mask mask : {Mask::kBool, Mask::kFloat32, Mask::kOfInputDtype}) {
      Case c = dense_case(dtype, 1, 100, 140, 2, 1, 320, false);
      c.mask = mask;
      c.mask_broadcast = {0, 1};
      TestCall call(c);
      reference::Array values = reference::read(call.inputs.mask);
      for (int64_t x = 20 * 140; x < 45 * 140; ++x)
        values.data[x] = mask == Mask::kBool ? 0 : -kInf;
      reference::write(call.inputs.mask, values);
      const Result r = check_acceptance(call);
      for (int64_t i = 20; i < 45; ++i) {
        EXPECT_EQ(r.lse.data[i], -kInf);
        for (int64_t d = 0; d < 320; ++d) {
          ASSERT_EQ(r.out.data[i * 320 + d], 0);
          ASSERT_EQ(r.dq.data[i * 320 + d], 0);
        }
      }
    }
  }
}

TEST(Acceptance, row_39_dropout) {
  for (const DType dtype : kBoth) {
    for (const double p : {0.1, 0.3}) {
      for (const bool causal : {false, true}) {
        Case c = dense_case(dtype, 2, 100, 120, 4, 2, 320, causal);
        c.options.dropout_p = p;
        c.options.dropout_seed = 0xfeedfacecafebeefULL;
        c.options.dropout_offset = 12;
        check_acceptance(c);
      }
    }
  }
}

TEST(Acceptance, row_41_layouts) {
  for (const bool pack : {false, true}) {
    Case c = dense_case(kBf16, 2, 150, 150, 4, 2, 512, true);
    c.packed = pack;
    const Result contiguous = run(c);
    for (const Layout layout :
         {Layout::kTransposed, Layout::kFused, Layout::kPadded, Layout::kOffset}) {
      c.layout = layout;
      SCOPED_TRACE(describe(c));
      expect_same_bits(contiguous, run(c));
    }
    c.layout = Layout::kExpanded;
    check_acceptance(c);
  }
}

// One kind of error for each kind of fault (tests/host holds the long list).
TEST(Acceptance, row_45_kinds_of_errors) {
  const Case c = dense_case(kBf16, 1, 8, 8, 2, 1, 512, true);
  TestCall value(c), type(c);
  value.inputs.k.shape[3] = 64;
  EXPECT_EQ(value.run_forward().kind(), ErrorKind::kInvalidValue);
  type.inputs.k.dtype = DType::kFloat32;
  EXPECT_EQ(type.run_forward().kind(), ErrorKind::kInvalidType);
  EXPECT_TRUE(value.outputs_untouched() && type.outputs_untouched());
}

}  // namespace
}  // namespace ffpa::test
