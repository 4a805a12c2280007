// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Public bug reports from case 46 on: alignment, windows, packing, sizes, strides, checks. The
// first cases stand in public_bug_reports_test.cpp.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <limits>

#include "support/compare.h"
#include "support/values.h"

namespace ffpa::test {
namespace {

using reference::Array;
using reference::Result;

constexpr DType kDtypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// With Q = 0 a row is the mean of the values that it sees.
Result mean_of_visible(const Case& c) {
  TestCall call(c);
  fill(call.inputs.q, 0);
  return check(call);
}

// Causal is aligned bottom-right, in both directions.
TEST(PublicBugReports, case_46_causal_alignment) {
  const Result wide = mean_of_visible(dense_case(DType::kFloat32, 1, 2, 5, 1, 1, 64, true));
  EXPECT_NEAR(wide.lse.data[0], std::log(4), 1e-6);
  EXPECT_NEAR(wide.lse.data[1], std::log(5), 1e-6);
  const Result tall = mean_of_visible(dense_case(DType::kFloat32, 1, 5, 2, 1, 1, 64, true));
  EXPECT_EQ(tall.lse.data[2], -kInf);
  EXPECT_NEAR(tall.lse.data[3], 0, 1e-6);
  EXPECT_NEAR(tall.lse.data[4], std::log(2), 1e-6);
}

// A decode step with causal sees every key.
TEST(PublicBugReports, case_47_causal_decode) {
  const Result r = mean_of_visible(dense_case(DType::kBFloat16, 1, 1, 100, 2, 1, 64, true));
  EXPECT_NEAR(r.lse.data[0], std::log(100), 1e-5);
}

// More queries than keys: the top rows are zero.
TEST(PublicBugReports, case_48_top_rows_without_keys) {
  TestCall call(dense_case(DType::kFloat16, 1, 5, 2, 1, 1, 64, true));
  const Result r = check(call);
  for (int64_t x = 0; x < 3 * 64; ++x) ASSERT_EQ(r.out.data[x], 0);
  for (int64_t x = 0; x < 3 * 64; ++x) ASSERT_EQ(r.dq.data[x], 0);
}

// A decode step with a window sees the last 128 keys besides its own.
TEST(PublicBugReports, case_49_window_in_decode) {
  Case c = dense_case(DType::kBFloat16, 1, 1, 256, 1, 1, 64, true);
  c.options.window_left = 128;
  EXPECT_NEAR(mean_of_visible(c).lse.data[0], std::log(129), 1e-5);
}

// window_left counts keys besides the query's own: W keys are window_left = W - 1.
TEST(PublicBugReports, case_50_window_counts_other_keys) {
  Case c = dense_case(DType::kFloat32, 1, 20, 20, 1, 1, 64, true);
  c.options.window_left = 4;
  const Result r = mean_of_visible(c);
  for (int64_t i = 0; i < 20; ++i) {
    EXPECT_NEAR(r.lse.data[i], std::log(std::min<double>(5, i + 1.0)), 1e-6);
  }
}

// A window of 0 is the own key; below -1 is refused.
TEST(PublicBugReports, case_52_window_zero) {
  Case c = dense_case(DType::kFloat32, 1, 20, 20, 1, 1, 64, true);
  c.options.window_left = 0;
  TestCall call(c);
  const Result r = check(call);
  EXPECT_TRUE(same_bits("out", r.out, reference::read(call.inputs.v)));
  c.options.window_left = -2;
  EXPECT_EQ(TestCall(c).run_forward().argument(), "window_left");
}

// The mask comes after the softcap: a capped score is not visible again.
TEST(PublicBugReports, case_53_mask_after_softcap) {
  for (const DType dtype : kDtypes) {
    Case c = dense_case(dtype, 1, 40, 40, 2, 1, 64, true);
    c.options.softcap = 1;
    c.q_size = 5;
    TestCall call(c);
    const Result r = check(call);
    const Array v = reference::read(call.inputs.v);
    for (int64_t d = 0; d < 64; ++d) ASSERT_EQ(r.out.data[d], v.data[d]);  // sees one key
  }
}

// Logits far above the softcap: the derivative of tanh does not come from P.
TEST(PublicBugReports, case_55_softcap_with_large_logits) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    Case c = dense_case(dtype, 1, 60, 80, 2, 1, 64, true);
    c.options.softcap = 30;
    c.q_size = 40;
    c.k_size = 5;
    TestCall call(c);
    const Result r = check(call);
    EXPECT_TRUE(all_finite(r.dq) && all_finite(r.dk) && all_finite(r.dv));
  }
}

// Two documents in a pack equal two documents.
TEST(PublicBugReports, case_58_packed_documents_are_separate) {
  for (const DType dtype : kDtypes) {
    TestCall both(packed_case(dtype, {37, 90}, {37, 90}, 2, 1, 64, true));
    const Result r = check(both);
    int32_t begin = 0;
    for (const int32_t length : {37, 90}) {
      TestCall one(packed_case(dtype, {length}, {length}, 2, 1, 64, true));
      const auto copy = [&](const Tensor& from, const Tensor& to) {
        reference::write(to, rows(reference::read(from), begin, begin + length));
      };
      copy(both.inputs.q, one.inputs.q);
      copy(both.inputs.k, one.inputs.k);
      copy(both.inputs.v, one.inputs.v);
      copy(both.saved.dout, one.saved.dout);
      const Result s = one.run();
      EXPECT_TRUE(same_bits("out", rows(r.out, begin, begin + length), s.out));
      EXPECT_TRUE(same_bits("dq", rows(r.dq, begin, begin + length), s.dq));
      EXPECT_TRUE(same_bits("dk", rows(r.dk, begin, begin + length), s.dk));
      EXPECT_TRUE(same_bits("dv", rows(r.dv, begin, begin + length), s.dv));
      begin += length;
    }
  }
}

// Address space that costs memory only where it is written; reads give zeros.
class SparseMemory {
 public:
  explicit SparseMemory(size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~SparseMemory() {
    if (given()) munmap(data_, bytes_);
  }
  SparseMemory(const SparseMemory&) = delete;
  bool given() const { return data_ != MAP_FAILED; }
  char* data() const { return static_cast<char*>(data_); }

 private:
  size_t bytes_;
  void* data_;
};

// Offsets beyond 2^31 elements: the last of half a million strided rows has the weight.
TEST(PublicBugReports, case_65_offsets_beyond_int32) {
  constexpr int64_t kRow = 4096, kRows = (int64_t{1} << 19) + 70;
  const SparseMemory memory(static_cast<size_t>(kRow * kRows * 2));
  if (!memory.given()) GTEST_SKIP() << "no address space of 4 GiB";
  Case c = dense_case(DType::kBFloat16, 1, 1, 1, 1, 1, 8);
  c.no_dk = c.no_dv = true;
  TestCall call(c);
  for (Tensor* t : {&call.inputs.k, &call.inputs.v}) {
    t->data = memory.data() + (t == &call.inputs.v ? 64 : 0);
    t->shape[2] = kRows;
    t->stride = {kRows * kRow, kRows * kRow, kRow, 1};
  }
  fill(call.inputs.q, 1);
  for (int64_t d = 0; d < 8; ++d) {
    put(call.inputs.k, 0, 0, kRows - 1, d, 5);
    put(call.inputs.v, 0, 0, kRows - 1, d, 2 + static_cast<double>(d));
  }
  ASSERT_TRUE(call.run_forward().ok());
  ASSERT_TRUE(call.run_backward().ok());
  const double score = 40 / std::sqrt(8.0);
  const double lse = std::log(static_cast<double>(kRows - 1) + std::exp(score));
  const double p = std::exp(score - lse);
  EXPECT_NEAR(reference::read(call.outputs.lse).data[0], lse, 2e-4);
  const Array out = reference::read(call.outputs.out), dq = reference::read(call.gradients.dq);
  const Array dout = reference::read(call.saved.dout);
  double delta = 0, dp = 0;
  for (int64_t d = 0; d < 8; ++d) {
    const double v = 2 + static_cast<double>(d);
    EXPECT_NEAR(out.data[d], p * v, 0x1p-8 * 9);
    delta += dout.data[d] * p * v;
    dp += dout.data[d] * v;
  }
  const double expected = p * (dp - delta) * 5 / std::sqrt(8.0);
  for (int64_t d = 0; d < 8; ++d) EXPECT_NEAR(dq.data[d], expected, 2e-2 * std::abs(expected));
}

// 65,536 sequences in a batch.
TEST(PublicBugReports, case_67_batch_65536) {
  check(dense_case(DType::kFloat16, 65536, 1, 2, 1, 1, 8));
}

// 80,000 packed sequences.
TEST(PublicBugReports, case_70_80000_packed_sequences) {
  const std::vector<int32_t> lengths(80000, 2);
  check(packed_case(DType::kBFloat16, lengths, lengths, 1, 1, 8, true));
}

// Transposed inputs and a 4-D mask.
TEST(PublicBugReports, case_73_transposed_inputs_with_mask) {
  for (const DType dtype : kDtypes) {
    Case c = dense_case(dtype, 2, 40, 60, 4, 2, 64);
    c.mask = Mask::kFloat32;
    const Result contiguous = run(c);
    c.layout = Layout::kTransposed;
    check(c);
    expect_same_bits(contiguous, run(c));
  }
}

// Strides of dimensions of size 1 are noise.
TEST(PublicBugReports, case_74_degenerate_strides) {
  Case c = dense_case(DType::kFloat16, 1, 1, 2, 1, 1, 16);
  c.mask = Mask::kFloat32;
  c.mask_broadcast = {0, 1, 3};
  TestCall normal(c), odd(c);
  odd.inputs.q.stride = {-7, 3, 99, 1};
  odd.inputs.k.stride[0] = 5;
  odd.inputs.k.stride[1] = 1;
  odd.inputs.mask.stride = {9, -9, 1, 77};
  expect_same_bits(normal.run(), odd.run());
}

// One KV head, packed, with any head stride.
TEST(PublicBugReports, case_75_size_1_head_dimension) {
  for (const DType dtype : kDtypes) {
    const Case c = packed_case(dtype, {30, 9}, {30, 9}, 4, 1, 64, true);
    TestCall normal(c), odd(c);
    odd.inputs.k.stride[1] = odd.inputs.v.stride[1] = 1;
    expect_same_bits(normal.run(), odd.run());
  }
}

// A head dim that no kernel serves is refused by name; its neighbour works.
TEST(PublicBugReports, case_81_head_dim_100) {
  TestCall call(dense_case(DType::kFloat16, 1, 20, 20, 1, 1, 100));
  const Status status = call.run_forward();
  EXPECT_EQ(status.argument(), "q") << status.message();
  EXPECT_NE(status.message().find("100"), std::string::npos) << status.message();
  EXPECT_TRUE(call.outputs_untouched());
  check(dense_case(DType::kFloat16, 1, 20, 20, 1, 1, 104));
}

// Each offset draws its own dropout mask; forward and backward share one.
TEST(PublicBugReports, case_103_dropout_offsets) {
  Case c = dense_case(DType::kFloat32, 1, 64, 64, 2, 1, 64);
  c.options.dropout_p = 0.4;
  c.options.dropout_seed = 5;
  check(c);
  const Result first = run(c);
  c.options.dropout_offset = 2 * 64 * 64;
  check(c);
  EXPECT_FALSE(same_bits("out", first.out, run(c).out));
}

// LSE is [heads, tokens], float32, in a pack too.
TEST(PublicBugReports, case_117_packed_lse_layout) {
  for (const DType dtype : kDtypes) {
    TestCall call(packed_case(dtype, {25, 82, 7}, {25, 82, 7}, 8, 2, 64, true));
    EXPECT_EQ(check(call).lse.shape, (std::vector<int64_t>{8, 114}));
  }
}

// A sequence longer than max_seqlen.
TEST(PublicBugReports, case_122_max_seqlen_too_small) {
  TestCall call(packed_case(DType::kBFloat16, {100}, {100}, 1, 1, 64));
  call.inputs.max_seqlen_q = call.inputs.max_seqlen_k = 64;
  const Status status = call.run_forward();
  EXPECT_EQ(status.argument(), "cu_seqlens_q") << status.message();
  EXPECT_NE(status.message().find("100"), std::string::npos) << status.message();
  EXPECT_TRUE(call.outputs_untouched());
}

// cu_seqlens of the wrong length.
TEST(PublicBugReports, case_123_cu_seqlens_length) {
  TestCall call(packed_case(DType::kBFloat16, {10, 20}, {10, 20}, 1, 1, 64));
  call.inputs.cu_seqlens_k.shape[0] = 2;
  const Status status = call.run_forward();
  EXPECT_EQ(status.argument(), "cu_seqlens_k") << status.message();
  EXPECT_TRUE(call.outputs_untouched());
}

// fp16 queries on bf16 keys and values.
TEST(PublicBugReports, case_126_mixed_dtypes) {
  TestCall call(dense_case(DType::kFloat16, 1, 8, 8, 1, 1, 64));
  call.inputs.k.dtype = call.inputs.v.dtype = DType::kBFloat16;
  const Status status = call.run_forward();
  EXPECT_EQ(status.kind(), ErrorKind::kInvalidType);
  EXPECT_EQ(status.message(), "k: expected dtype float16, as q, got bfloat16");
}

// GQA at D = 512 and 8k tokens: a visible choice of kernel, and memory that does not grow with N^2.
TEST(PublicBugReports, case_127_memory_of_long_gqa) {
  const auto workspace = [](int32_t n, bool backward) {
    AttentionInputs in;
    in.q = Tensor::contiguous(nullptr, DType::kBFloat16, {1, 32, n, 512});
    in.k = in.v = Tensor::contiguous(nullptr, DType::kBFloat16, {1, 4, n, 512});
    AttentionOptions options;
    options.causal = true;
    options.num_threads = 2;
    size_t bytes = 0;
    const Status status =
        backward ? backward_workspace_bytes(in, options, {in.q, in.k, in.v, {}, {}}, &bytes)
                 : forward_workspace_bytes(in, options, &bytes);
    EXPECT_TRUE(status.ok()) << status.message();
    return bytes;
  };
  // Inputs, outputs and their gradients: q, out (dout, dq) and k, v (dk, dv).
  const size_t tensors = 2 * size_t{8192} * 512 * (32 + 32 + 4 + 4);
  for (const bool backward : {false, true}) {
    const size_t at_8k = workspace(8192, backward), at_16k = workspace(16384, backward);
    EXPECT_LE(at_16k, 2 * at_8k + 4096);
    EXPECT_LT(at_8k, (backward ? 2 * tensors : tensors) / 5);
  }
}

// Which kernel runs can be asked, and asked for.
TEST(PublicBugReports, case_128_explain_and_strict_backend) {
  TestCall call(dense_case(DType::kBFloat16, 1, 16, 16, 8, 2, 512, true));
  std::string text;
  ASSERT_TRUE(explain(call.inputs, call.options, &text).ok());
  EXPECT_NE(text.find("cpu_forward"), std::string::npos) << text;
  EXPECT_NE(text.find("cpu_backward"), std::string::npos) << text;
  call.options.backend = Backend::kCpu;
  call.run();
  call.options.backend = Backend::kSm90;
  EXPECT_EQ(call.run_forward().argument(), "backend");
}

// dO from out.sum(): a broadcast one.
TEST(PublicBugReports, case_s1_broadcast_dout) {
  for (const DType dtype : kDtypes) {
    TestCall dense(dense_case(dtype, 2, 40, 40, 4, 2, 64, true)), broadcast(dense.test_case);
    fill(dense.saved.dout, 1);
    fill(broadcast.saved.dout, kNan);
    for (int64_t d = 0; d < 64; ++d) put(broadcast.saved.dout, 0, 0, 0, d, 1);
    broadcast.saved.dout.stride = {0, 0, 0, 1};
    expect_same_bits(dense.run(), broadcast.run());
  }
}

// K and V are one tensor.
TEST(PublicBugReports, case_s2_k_and_v_are_one_tensor) {
  for (const DType dtype : kDtypes) {
    for (const bool packed : {false, true}) {
      Case c = dense_case(dtype, 2, 30, 30, 4, 1, 512, true);
      c.packed = packed;
      c.v_is_k = true;
      check(c);
    }
  }
}

// cu_seqlens must be int32, contiguous and there.
TEST(PublicBugReports, case_s3_cu_seqlens_kinds) {
  TestCall call(packed_case(DType::kFloat32, {3, 4}, {3, 4}, 1, 1, 64));
  call.inputs.cu_seqlens_q.dtype = DType::kInt64;
  EXPECT_EQ(call.run_forward().message(), "cu_seqlens_q: expected dtype int32, got int64");
  TestCall strided(call.test_case);
  strided.inputs.cu_seqlens_k.stride[0] = 2;
  EXPECT_EQ(strided.run_forward().argument(), "cu_seqlens_k");
}

// max_seqlen beyond every sequence; packs of empty sequences.
TEST(PublicBugReports, case_s5_max_seqlen_and_empty_packs) {
  for (const DType dtype : kDtypes) {
    Case c = packed_case(dtype, {3, 4}, {3, 4}, 2, 1, 64, true);
    const Result tight = run(c);
    c.extra_max_seqlen = 4092;
    check(c);
    expect_same_bits(tight, run(c));
    check(packed_case(dtype, {0, 0}, {0, 0}, 2, 1, 64, true));
    check(packed_case(dtype, {}, {}, 2, 1, 64, true));
  }
}

// Only some inputs need gradients.
TEST(PublicBugReports, case_s7_some_gradients) {
  Case c = dense_case(DType::kBFloat16, 1, 60, 60, 4, 2, 64, true);
  const Result all = run(c);
  for (int missing = 1; missing < 8; ++missing) {
    c.no_dq = missing & 1;
    c.no_dk = missing & 2;
    c.no_dv = missing & 4;
    expect_same_bits(all, run(c));
  }
}

// NaN and infinities in rows that nothing sees (behind seqused: TestCall puts NaN there).
TEST(PublicBugReports, case_s13_nan_in_padding) {
  for (const DType dtype : kDtypes) {
    for (const bool packed : {false, true}) {
      Case c = dense_case(dtype, 2, 90, 90, 2, 1, 64, true);
      c.packed = packed;
      c.used_q = {70, 1};
      c.used_k = {65, 90};
      TestCall call(c);
      const Result r = check(call);
      EXPECT_TRUE(all_finite(r.out) && all_finite(r.dq) && all_finite(r.dk) && all_finite(r.dv));
    }
  }
}

// Gemma 4: scale 1, unit-RMS queries and keys, D = 512.
TEST(PublicBugReports, case_s14_scale_1_d512) {
  for (const int32_t n : {64, 130}) {
    Case c = dense_case(DType::kBFloat16, 1, n, n, 8, 1, 512, true);
    c.options.softmax_scale = 1.0;
    check(c);
  }
}

}  // namespace
}  // namespace ffpa::test
