// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Faults that users of attention kernels reported elsewhere. Each test carries the number of its
// case; the comment names the fault. Cases up to 44: empty rows, gradients, NaN, tiny problems.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "support/compare.h"
#include "support/values.h"

namespace ffpa::test {
namespace {

using reference::Array;
using reference::Result;

constexpr DType kDtypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Packed backward at D = 512 (never returned elsewhere).
TEST(PublicBugReports, case_1_packed_backward_d512) {
  check(packed_case(DType::kBFloat16, {128}, {128}, 2, 2, 512, true));
  check(packed_case(DType::kBFloat16, {96}, {96}, 16, 2, 512, true));
}

// Sequences without queries, and without keys, in front of a real one.
TEST(PublicBugReports, case_2_empty_sequences_before_a_real_one) {
  for (const bool causal : {false, true}) {
    TestCall call(packed_case(DType::kBFloat16, {0, 0, 255}, {0, 1, 511}, 2, 2, 128, causal));
    const Result r = check(call);
    EXPECT_TRUE(all_zero("dk", rows(r.dk, 0, 1)));
    EXPECT_TRUE(all_zero("dv", rows(r.dv, 0, 1)));
  }
  // As reported, cu_seqlens_k ends one past the keys: refused.
  TestCall call(packed_case(DType::kBFloat16, {0, 0, 255}, {0, 1, 511}, 2, 2, 128));
  static_cast<int32_t*>(call.inputs.cu_seqlens_k.data)[3] = 513;
  call.inputs.max_seqlen_k = 600;
  const Status status = call.run_forward();
  EXPECT_EQ(status.argument(), "cu_seqlens_k") << status.message();
  EXPECT_TRUE(call.outputs_untouched());
}

// A packed sequence without keys.
TEST(PublicBugReports, case_3_sequence_without_keys) {
  for (const int64_t head_dim : {64, 256, 512}) {
    TestCall call(packed_case(DType::kBFloat16, {40, 33, 70}, {0, 50, 0}, 2, 1, head_dim));
    const Result r = check(call);
    EXPECT_TRUE(all_zero("out", rows(r.out, 0, 40)));
    EXPECT_TRUE(all_zero("out", rows(r.out, 73, 143)));
    EXPECT_EQ(r.lse.data[0], -kInf);
    EXPECT_EQ(r.lse.data[73], -kInf);
    EXPECT_TRUE(std::isfinite(r.lse.data[40]));
  }
}

// Several whole tiles are masked, for some rows and for all.
TEST(PublicBugReports, case_5_whole_tiles_masked) {
  for (const DType dtype : kDtypes) {
    Case c = dense_case(dtype, 1, 140, 700, 2, 1, 64);
    c.mask = Mask::kBool;
    c.mask_broadcast = {0, 1};
    TestCall call(c);
    for (int64_t i = 0; i < 140; ++i) {
      for (int64_t j = 0; j < 700; ++j) {
        const bool visible = i % 3 == 0 ? j >= 640 : i % 3 == 1 ? j < 30 : false;
        put(call.inputs.mask, 0, 0, i, j, visible);
      }
    }
    const Result r = check(call);
    EXPECT_EQ(r.lse.data[2], -kInf);
  }
}

// Backward aligned causal cross-attention otherwise than forward.
TEST(PublicBugReports, case_7_causal_cross_attention_alignment) {
  for (const DType dtype : kDtypes) {
    for (const int64_t head_dim : {64, 256, 320, 512}) {
      check(dense_case(dtype, 1, 96, 160, 2, 2, head_dim, true));
      check(dense_case(dtype, 1, 160, 96, 2, 2, head_dim, true));
    }
  }
}

// Many short packed sequences: padded offsets of two kernels disagreed.
TEST(PublicBugReports, case_8_many_short_sequences) {
  std::vector<int32_t> lengths(63);
  std::iota(lengths.begin(), lengths.end(), 1);
  for (const int64_t head_dim : {32, 64}) {
    check(packed_case(DType::kBFloat16, lengths, lengths, 2, 1, head_dim, true));
  }
}

// Head dims that are no multiple of 32: the tail of dQ was never written.
TEST(PublicBugReports, case_9_head_dims_72_and_104) {
  for (const DType dtype : kDtypes) {
    for (const int64_t head_dim : {72, 104, 8, 40}) {
      check(packed_case(dtype, {230}, {230}, 2, 2, head_dim));
    }
  }
}

// Head ratios and a value head dim of its own: head map and extents.
TEST(PublicBugReports, case_11_gqa_and_value_head_dim) {
  for (const DType dtype : kDtypes) {
    Case c = dense_case(dtype, 2, 50, 50, 8, 2, 64, true);
    c.head_dim_v = 128;
    check(c);
    c.packed = true;
    c.layout = Layout::kTransposed;
    check(c);
  }
}

// Gaps between packed sequences (seqused) must not count.
TEST(PublicBugReports, case_12_padding_gaps) {
  for (const DType dtype : kDtypes) {
    for (const bool causal : {false, true}) {
      Case c = packed_case(dtype, {3, 4, 2}, {3, 4, 2}, 2, 1, 64, causal);
      c.used_q = c.used_k = {2, 3, 1};
      c.dlse = true;
      TestCall call(c);
      const Result r = check(call);
      for (const int64_t padding : {2, 6, 8}) {
        EXPECT_TRUE(all_zero("out", rows(r.out, padding, padding + 1)));
        EXPECT_TRUE(all_zero("dq", rows(r.dq, padding, padding + 1)));
        EXPECT_TRUE(all_zero("dk", rows(r.dk, padding, padding + 1)));
        EXPECT_TRUE(all_zero("dv", rows(r.dv, padding, padding + 1)));
        EXPECT_EQ(r.lse.data[padding], -kInf);
      }
    }
  }
}

// Expanded K and V, a boolean mask, and kv_len % 32 == 1.
TEST(PublicBugReports, case_18_expanded_heads_with_mask) {
  Case c = dense_case(DType::kBFloat16, 1, 40, 33, 8, 8, 512);
  c.layout = Layout::kExpanded;
  c.mask = Mask::kBool;
  c.mask_broadcast = {1};
  check(c);
}

// Transposed inputs equal contiguous ones.
TEST(PublicBugReports, case_20_transposed_inputs) {
  for (const DType dtype : kDtypes) {
    for (const int64_t head_dim : {64, 256, 320, 512}) {
      Case c = dense_case(dtype, 2, 70, 70, 4, 2, head_dim, true);
      const Result contiguous = run(c);
      c.layout = Layout::kTransposed;
      expect_same_bits(contiguous, run(c));
    }
  }
}

// dO = 0 with a large negative additive bias.
TEST(PublicBugReports, case_23_zero_output_gradient) {
  for (const DType dtype : kDtypes) {
    Case c = dense_case(dtype, 1, 40, 40, 2, 1, 64, true);
    c.mask = Mask::kOfInputDtype;
    c.mask_broadcast = {0, 1};
    c.mask_hides_keys = false;
    c.dout = Gradient::kZero;
    TestCall call(c);
    for (int64_t i = 0; i < 40; ++i) {
      for (int64_t j = 0; j < 40; ++j) put(call.inputs.mask, 0, 0, i, j, j > i ? -65504 : 0);
    }
    const Result r = call.run();
    for (const auto& [name, a] : {std::pair{"dq", &r.dq}, {"dk", &r.dk}, {"dv", &r.dv}}) {
      EXPECT_TRUE(all_zero(name, *a));
    }
  }
}

// Packed causal, more queries than keys.
TEST(PublicBugReports, case_25_queries_longer_than_keys) {
  for (const DType dtype : kDtypes) {
    for (const int64_t head_dim : {32, 64, 256, 512}) {
      Case c = packed_case(dtype, {76, 34, 146}, {1, 1, 1}, 1, 1, head_dim, true);
      c.q_size = c.k_size = c.v_size = 3;
      TestCall call(c);
      const Result r = check(call);
      EXPECT_TRUE(all_zero("out", rows(r.out, 0, 75)));
      EXPECT_TRUE(all_zero("dq", r.dq));
      EXPECT_EQ(r.lse.data[74], -kInf);
      EXPECT_TRUE(std::isfinite(r.lse.data[75]));
    }
  }
}

// One token.
TEST(PublicBugReports, case_26_single_token) {
  for (const DType dtype : kDtypes) {
    for (const int64_t head_dim : {16, 64, 256, 320, 512}) {
      Case c = dense_case(dtype, 1, 1, 1, 1, 1, head_dim);
      c.q_size = c.k_size = c.v_size = 3;
      c.dout = Gradient::kOnes;
      TestCall call(c);
      const Result r = check(call);
      EXPECT_TRUE(all_zero("dq", r.dq));
      EXPECT_TRUE(all_zero("dk", r.dk));
      EXPECT_EQ(r.dv.data, std::vector<double>(head_dim, 1.0));
    }
  }
}

// A packed sequence with keys and without queries.
TEST(PublicBugReports, case_27_sequence_without_queries) {
  for (const DType dtype : kDtypes) {
    for (const int64_t head_dim : {64, 256, 320, 512}) {
      TestCall call(packed_case(dtype, {0, 64}, {64, 64}, 2, 1, head_dim));
      const Result r = check(call);
      EXPECT_TRUE(all_zero("dk", rows(r.dk, 0, 64)));
      EXPECT_TRUE(all_zero("dv", rows(r.dv, 0, 64)));
    }
  }
}

// Logits near -2e5: far below any finite stand-in for minus infinity.
TEST(PublicBugReports, case_30_very_negative_logits) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    Case c = dense_case(dtype, 1, 5, 90, 1, 1, 128);
    c.options.softmax_scale = 0.25;
    TestCall call(c);
    fill(call.inputs.q, 40);  // |q| = 452, |k| = 1878
    fill(call.inputs.k, -166);
    for (int64_t i = 0; i < 5; ++i) put(call.inputs.q, 0, 0, i, 0, 1);
    for (int64_t j = 0; j < 90; ++j) put(call.inputs.k, 0, 0, j, 0, -166 + j % 7);
    const Result r = call.run();
    const reference::Call described = call.reference_call();
    const Result exact = reference::attention(described);
    EXPECT_LT(exact.lse.data[0], -2.1e5);
    EXPECT_TRUE(lse_close_to(r.lse, exact.lse));
    for (int64_t i = 0; i < r.out.numel(); ++i) {
      ASSERT_NEAR(r.out.data[i], exact.out.data[i], 0x1p-8 * 4) << r.out.index_text(i);
    }
    EXPECT_TRUE(all_finite(r.dq) && all_finite(r.dk) && all_finite(r.dv));
  }
}

// More queries than keys, causal: LSE of rows without keys.
TEST(PublicBugReports, case_31_lse_of_empty_rows) {
  for (const DType dtype : kDtypes) {
    for (const int64_t head_dim : {64, 256, 320, 512}) {
      TestCall call(dense_case(dtype, 1, 4, 2, 1, 1, head_dim, true));
      const Result r = check(call);
      EXPECT_EQ(r.lse.data[0], -kInf);
      EXPECT_EQ(r.lse.data[1], -kInf);
      EXPECT_TRUE(std::isfinite(r.lse.data[2]));
      for (int64_t x = 0; x < 2 * head_dim; ++x) ASSERT_EQ(r.out.data[x], 0);
    }
  }
}

// Keys and values behind a mask may be NaN or infinite.
TEST(PublicBugReports, case_35_masked_values_do_not_leak) {
  for (const DType dtype : kDtypes) {
    for (const Mask mask : {Mask::kBool, Mask::kFloat32}) {
      for (const double poison : {kInf, -kInf, kNan}) {
        Case c = dense_case(dtype, 1, 50, 150, 2, 1, 64);
        c.mask = mask;
        c.mask_broadcast = {0, 1, 2};
        TestCall call(c);
        for (int64_t j = 0; j < 150; ++j) {
          const bool visible = j % 5 != 2 && j < 120;
          put(call.inputs.mask, 0, 0, 0, j, mask == Mask::kBool ? visible : visible ? 0.5 : -kInf);
          for (int64_t d = 0; d < 64 && !visible; ++d) {
            put(call.inputs.k, 0, 0, j, d, poison);
            put(call.inputs.v, 0, 0, j, d, poison);
          }
        }
        check(call);
      }
    }
  }
}

// Queries without keys whose sequence is followed by others; D = 256.
TEST(PublicBugReports, case_37_zero_length_queries) {
  TestCall call(packed_case(DType::kBFloat16, {0, 60, 42, 0}, {127, 87, 42, 154}, 4, 1, 256));
  const Result r = check(call);
  EXPECT_TRUE(all_zero("dk", rows(r.dk, 0, 127)));
  EXPECT_TRUE(all_zero("dv", rows(r.dv, 256, 410)));
}

// No keys at all, and no queries at all.
TEST(PublicBugReports, case_38_no_keys) {
  for (const DType dtype : kDtypes) {
    for (const bool causal : {false, true}) {
      for (const int64_t head_dim : {64, 256, 320, 512}) {
        TestCall keyless(dense_case(dtype, 2, 17, 0, 2, 1, head_dim, causal));
        const Result r = check(keyless);
        EXPECT_TRUE(all_zero("out", r.out));
        EXPECT_TRUE(all_zero("dq", r.dq));
        for (const double x : r.lse.data) EXPECT_EQ(x, -kInf);
        TestCall queryless(dense_case(dtype, 2, 0, 17, 2, 1, head_dim, causal));
        const Result s = check(queryless);
        EXPECT_TRUE(all_zero("dk", s.dk));
        EXPECT_TRUE(all_zero("dv", s.dv));
        check(dense_case(dtype, 0, 5, 5, 2, 1, head_dim, causal));
        check(dense_case(dtype, 2, 0, 0, 2, 1, head_dim, causal));
      }
    }
  }
}

// max_seqlen_q = 1, and sequences without queries and keys.
TEST(PublicBugReports, case_40_decode_with_empty_sequences) {
  for (const DType dtype : kDtypes) {
    check(packed_case(dtype, {0, 1, 0, 1}, {0, 3, 0, 5}, 9, 3, 64));
    check(packed_case(dtype, {0, 1, 0, 1}, {0, 3, 0, 5}, 9, 3, 512, true));
  }
}

// Fewer tokens than sequences.
TEST(PublicBugReports, case_41_fewer_tokens_than_sequences) {
  for (const DType dtype : kDtypes) {
    check(packed_case(dtype, {0, 0, 0, 1}, {0, 0, 0, 1}, 21, 7, 120));
    check(packed_case(dtype, {0, 0, 0, 1}, {0, 0, 0, 1}, 21, 7, 512, true));
  }
}

// One query and one key.
TEST(PublicBugReports, case_44_one_query_one_key) {
  for (const DType dtype : kDtypes) {
    for (const bool causal : {false, true}) {
      TestCall call(dense_case(dtype, 2, 1, 1, 4, 2, 512, causal));
      const Result r = check(call);
      EXPECT_TRUE(all_zero("dq", r.dq));
      EXPECT_TRUE(all_zero("dk", r.dk));
    }
  }
}

}  // namespace
}  // namespace ffpa::test
