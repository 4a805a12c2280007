// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// What holds exactly: same bits for the same mathematics, zeros that are zeros.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "support/compare.h"
#include "support/values.h"

namespace ffpa::test {
namespace {

using reference::Array;
using reference::Result;

constexpr DType kDtypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
constexpr double kInf = std::numeric_limits<double>::infinity();

Case self_attention(DType dtype, bool packed) {
  Case c;
  c.dtype = dtype;
  c.packed = packed;
  c.lengths_q = packed ? std::vector{70, 1, 0, 133} : std::vector{133, 133};
  c.heads_q = 6;
  c.heads_kv = 2;
  c.head_dim = 72;
  c.options.causal = true;
  c.dlse = true;
  return c;
}

Case with_all_options(DType dtype, bool packed) {
  Case c = self_attention(dtype, packed);
  c.options.window_left = 90;
  c.options.softcap = 4;
  c.options.dropout_p = 0.2;
  c.options.dropout_seed = 77;
  c.sink = true;
  c.alibi_rank = 1;
  c.mask = Mask::kFloat32;
  c.mask_broadcast = {0};
  return c;
}

class Properties : public testing::TestWithParam<std::tuple<DType, bool>> {
 protected:
  Case plain() const { return self_attention(std::get<0>(GetParam()), packed()); }
  Case full() const { return with_all_options(std::get<0>(GetParam()), packed()); }
  bool packed() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(All, Properties,
                         testing::Combine(testing::ValuesIn(kDtypes), testing::Bool()),
                         [](const auto& p) {
                           return std::string(dtype_name(std::get<0>(p.param))) +
                                  (std::get<1>(p.param) ? "_packed" : "_dense");
                         });

TEST_P(Properties, same_bits_when_repeated_and_for_any_number_of_threads) {
  for (Case c : {plain(), full()}) {
    c.options.num_threads = 1;
    const Result one = run(c);
    for (const int threads : {1, 2, 3, 0}) {
      c.options.num_threads = threads;
      SCOPED_TRACE("threads " + std::to_string(threads));
      expect_same_bits(one, run(c));
    }
  }
}

// Enough units and queries that keys and values are packed once for several tasks, if memory
// allows.
TEST_P(Properties, same_bits_whether_keys_are_shared_or_not) {
  Case c = plain();
  c.lengths_q = c.packed ? std::vector{600, 300, 1, 0, 513, 40, 600, 600} : std::vector(6, 530);
  c.heads_q = 4;
  c.head_dim = 64;
  c.options.num_threads = 1;
  const auto forward = [&](bool sharing) {
    TestCall call(c);
    std::string text;
    EXPECT_TRUE(explain(call.inputs, call.options, &text).ok());
    EXPECT_EQ(text.find("shared keys") != std::string::npos, sharing) << text;
    EXPECT_TRUE(call.run_forward().ok());
    return std::pair{reference::read(call.outputs.out), reference::read(call.outputs.lse)};
  };
  const auto shared = forward(true);
  size_t bytes = 0;
  const TestCall call(c);
  ASSERT_TRUE(forward_workspace_bytes(call.inputs, call.options, &bytes).ok());
  c.options.workspace_limit = static_cast<int64_t>(bytes) - 1;
  const auto alone = forward(false);
  EXPECT_TRUE(same_bits("out", alone.first, shared.first));
  EXPECT_TRUE(same_bits("lse", alone.second, shared.second));
}

TEST_P(Properties, a_workspace_limit_is_kept_or_refused) {
  Case c = plain();
  c.options.num_threads = 3;
  const Result want = run(c);
  const auto bytes = [&](auto function, auto&... more) {
    size_t n = 0;
    const TestCall call(c);
    const Status status = function(call.inputs, call.options, more..., &n);
    EXPECT_TRUE(status.ok()) << status.message();
    return static_cast<int64_t>(n);
  };
  const BackwardOutputs gradients = TestCall(c).gradients;
  c.options.num_threads = 1;
  const int64_t least =
      std::max(bytes(forward_workspace_bytes), bytes(backward_workspace_bytes, gradients));
  c.options.num_threads = 3;
  c.options.workspace_limit = least;
  EXPECT_LE(bytes(forward_workspace_bytes), least);
  EXPECT_LE(bytes(backward_workspace_bytes, gradients), least);
  expect_same_bits(want, run(c));

  c.options.workspace_limit = 1000;
  TestCall call(c);
  const Status status = call.run_forward();
  EXPECT_EQ(status.argument(), "workspace_limit");
  EXPECT_NE(status.message().find("got 1000"), std::string::npos) << status.message();
}

TEST_P(Properties, same_bits_for_any_layout) {
  for (Case c : {plain(), full()}) {
    const Result contiguous = run(c);
    for (const Layout layout :
         {Layout::kTransposed, Layout::kFused, Layout::kPadded, Layout::kOffset}) {
      c.layout = layout;
      SCOPED_TRACE(describe(c));
      expect_same_bits(contiguous, run(c));
    }
  }
}

TEST_P(Properties, expanded_heads_equal_their_copies) {
  Case c = plain();
  c.layout = Layout::kExpanded;
  TestCall expanded(c);
  c.layout = Layout::kContiguous;
  TestCall copied(c);
  for (Tensor AttentionInputs::* t :
       {&AttentionInputs::q, &AttentionInputs::k, &AttentionInputs::v}) {
    reference::write(copied.inputs.*t, reference::read(expanded.inputs.*t));
  }
  reference::write(copied.saved.dout, reference::read(expanded.saved.dout));
  expect_same_bits(expanded.run(), copied.run());
}

TEST_P(Properties, broadcast_dout_equals_its_copy) {
  Case c = plain();
  c.dout = Gradient::kExpanded;
  TestCall expanded(c);
  c.dout = Gradient::kRandom;
  TestCall copied(c);
  reference::write(copied.saved.dout, reference::read(expanded.saved.dout));
  if (c.dlse) reference::write(copied.saved.dlse, reference::read(expanded.saved.dlse));
  expect_same_bits(expanded.run(), copied.run());
}

// Strides of dimensions of size 1 mean nothing.
TEST_P(Properties, strides_of_size_1_dimensions_are_ignored) {
  Case c = plain();
  c.lengths_q = {1};
  c.lengths_k = {40};
  c.heads_q = c.heads_kv = 1;
  TestCall normal(c), odd(c);
  for (Tensor* t : {&odd.inputs.q, &odd.inputs.k, &odd.inputs.v, &odd.saved.dout, &odd.saved.dlse,
                    &odd.outputs.out, &odd.outputs.lse, &odd.gradients.dq, &odd.gradients.dk,
                    &odd.gradients.dv}) {
    for (int i = 0; i < t->rank; ++i) {
      if (t->shape[i] == 1) t->stride[i] = i == 1 ? 1 : 123457 * (i + 1);
    }
  }
  odd.saved.out = odd.outputs.out;
  odd.saved.lse = odd.outputs.lse;
  const Result a = normal.run();
  ASSERT_TRUE(odd.run_forward().ok());
  ASSERT_TRUE(odd.run_backward().ok());
  for (const auto& [got, want] : {std::pair{&odd.outputs.out, &a.out},
                                  {&odd.outputs.lse, &a.lse},
                                  {&odd.gradients.dq, &a.dq},
                                  {&odd.gradients.dk, &a.dk},
                                  {&odd.gradients.dv, &a.dv}}) {
    Tensor plain_strides = *got;
    for (int i = 0; i < got->rank; ++i) {
      if (got->shape[i] == 1) plain_strides.stride[i] = 0;
    }
    EXPECT_TRUE(same_bits("result", reference::read(plain_strides), *want));
  }
}

TEST_P(Properties, every_subset_of_gradients_gives_the_same_bits) {
  Case c = full();
  const Result all = run(c);
  for (int subset = 0; subset < 32; ++subset) {
    c.no_dq = subset & 1;
    c.no_dk = subset & 2;
    c.no_dv = subset & 4;
    c.no_dsink = subset & 8;
    c.no_dmask = subset & 16;
    SCOPED_TRACE("subset " + std::to_string(subset));
    const Result some = run(c);
    EXPECT_EQ(some.dq.defined(), !c.no_dq);
    EXPECT_EQ(some.dmask.defined(), !c.no_dmask);
    expect_same_bits(all, some);
  }
}

TEST_P(Properties, lse_is_optional) {
  TestCall with(full()), without(full());
  without.outputs.lse = {};
  ASSERT_TRUE(with.run_forward().ok());
  ASSERT_TRUE(without.run_forward().ok());
  EXPECT_TRUE(
      same_bits("out", reference::read(with.outputs.out), reference::read(without.outputs.out)));
}

TEST_P(Properties, zero_dout_gives_exact_zeros) {
  for (Case c : {plain(), full()}) {
    c.dlse = false;
    c.dout = Gradient::kZero;
    const Result r = run(c);
    EXPECT_TRUE(all_zero("dq", r.dq));
    EXPECT_TRUE(all_zero("dk", r.dk));
    EXPECT_TRUE(all_zero("dv", r.dv));
    EXPECT_TRUE(all_zero("dsink", r.dsink));
    EXPECT_TRUE(all_zero("dmask", r.dmask));
  }
}

TEST_P(Properties, one_key_a_row_gives_exactly_no_gradient_of_q_and_k) {
  for (const int64_t head_dim : {16, 64, 72, 320, 512}) {
    Case one = plain();
    one.lengths_q = packed() ? std::vector{40, 1, 0, 19} : std::vector{40, 40};
    one.dlse = false;
    one.head_dim = head_dim;
    Case own = one;
    one.options = {};
    one.lengths_k = packed() ? std::vector{1, 1, 1, 1} : std::vector{1, 1};
    own.options.window_left = own.options.window_right = 0;
    for (const Case& c : {one, own}) {
      SCOPED_TRACE(describe(c));
      TestCall call(c);
      const Result r = check(call);
      EXPECT_TRUE(all_zero("dq", r.dq));
      EXPECT_TRUE(all_zero("dk", r.dk));
    }
  }
}

TEST_P(Properties, constant_v_comes_out_and_moves_nothing) {
  for (Case c : {plain(), full()}) {
    c.options.dropout_p = 0;
    c.constant_v = true;
    c.dlse = false;
    check(c);
  }
}

// Everything about rows without keys, next to rows with some.
TEST_P(Properties, rows_without_keys_are_zero_and_minus_infinity) {
  Case c = plain();
  c.lengths_k = packed() ? std::vector{9, 0, 4, 40} : std::vector{40, 40};
  c.sink = true;
  TestCall call(c);
  const Result r = check(call);
  int64_t empty = 0;
  for (int64_t i = 0; i < r.lse.numel(); ++i) empty += r.lse.data[i] == -kInf;
  EXPECT_EQ(empty, packed() ? 6 * (61 + 1 + 93) : 2 * 6 * 93);
}

// Rows of sequence `s` of a packed array whose sequences have these lengths.
Array sequence(const Array& a, int64_t dimension, const std::vector<int32_t>& lengths, size_t s) {
  int64_t begin = 0;
  for (size_t b = 0; b < s; ++b) begin += lengths[b];
  return slice(a, dimension, begin, begin + lengths[s]);
}

void put_rows(const Tensor& t, int64_t dimension, int64_t begin, const Array& values) {
  Tensor part = t;
  part.data = static_cast<char*>(t.data) + begin * t.stride[dimension] * dtype_bytes(t.dtype);
  part.shape[dimension] = values.shape[dimension];
  reference::write(part, values);
}

// A sequence gives the same bits wherever it stands in the pack.
TEST(Pack, order_of_sequences_does_not_matter) {
  for (const DType dtype : kDtypes) {
    Case c = self_attention(dtype, true);
    c.lengths_q = {70, 1, 0, 133, 257, 33};
    c.lengths_k = {90, 5, 3, 133, 200, 300};
    TestCall first(c);
    const Case in_order = c;
    const std::vector<size_t> order = {4, 2, 5, 0, 3, 1};
    for (size_t i = 0; i < order.size(); ++i) {
      c.lengths_q[i] = in_order.lengths_q[order[i]];
      c.lengths_k[i] = in_order.lengths_k[order[i]];
    }
    TestCall second(c);
    int64_t q_begin = 0, k_begin = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      const auto move = [&](const Tensor& from, const Tensor& to, int64_t dimension, bool query) {
        put_rows(to, dimension, query ? q_begin : k_begin,
                 sequence(reference::read(from), dimension,
                          query ? in_order.lengths_q : in_order.lengths_k, order[i]));
      };
      move(first.inputs.q, second.inputs.q, 0, true);
      move(first.inputs.k, second.inputs.k, 0, false);
      move(first.inputs.v, second.inputs.v, 0, false);
      move(first.saved.dout, second.saved.dout, 0, true);
      move(first.saved.dlse, second.saved.dlse, 1, true);
      q_begin += c.lengths_q[i];
      k_begin += c.lengths_k[i];
    }
    const Result a = first.run(), b = second.run();
    for (size_t i = 0; i < order.size(); ++i) {
      SCOPED_TRACE("sequence " + std::to_string(order[i]));
      const auto same = [&](const char* name, const Array& x, const Array& y, int64_t dimension,
                            bool query) {
        const auto& before = query ? in_order.lengths_q : in_order.lengths_k;
        const auto& after = query ? c.lengths_q : c.lengths_k;
        EXPECT_TRUE(same_bits(name, sequence(x, dimension, before, order[i]),
                              sequence(y, dimension, after, i)));
      };
      same("out", a.out, b.out, 0, true);
      same("lse", a.lse, b.lse, 1, true);
      same("dq", a.dq, b.dq, 0, true);
      same("dk", a.dk, b.dk, 0, false);
      same("dv", a.dv, b.dv, 0, false);
    }
  }
}

}  // namespace
}  // namespace ffpa::test
