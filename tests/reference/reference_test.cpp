// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The reference against definitions, published vectors and central finite differences.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "reference/attention.h"
#include "reference/philox.h"

namespace ffpa::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Known-answer vectors published with Random123 (kat_vectors, "philox4x32 10").
TEST(Philox, random123_known_answers) {
  using Block = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, lanes_blocks_and_probability) {
  // Seed 0, block 0 is the first known answer: 0x6627e8d5 / 2^32 = 0.39904, 0xe169c58d = 0.88052.
  EXPECT_TRUE(dropout_keeps(0, 0, 0, 0.399));
  EXPECT_FALSE(dropout_keeps(0, 0, 0, 0.3991));
  EXPECT_TRUE(dropout_keeps(0, 1, 0, 0.880));
  EXPECT_FALSE(dropout_keeps(0, 0, 1, 0.881));
  for (uint64_t e = 0; e < 40; ++e) {  // only offset + element counts
    EXPECT_EQ(dropout_keeps(7, 13, e, 0.5), dropout_keeps(7, 0, e + 13, 0.5));
  }
  int kept = 0;
  for (uint64_t e = 0; e < 20000; ++e) kept += dropout_keeps(1234567890123, 5, e, 0.3);
  EXPECT_NEAR(kept / 20000.0, 0.7, 4 * std::sqrt(0.21 / 20000));
}

TEST(Array, sixteen_bit_floats_round_trip_and_round_to_even) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto pattern = static_cast<uint16_t>(bits);
      const double x = load(&pattern, dtype, 0);
      uint16_t back = 0;
      store(&back, dtype, 0, x);
      if (std::isnan(x)) {
        ASSERT_TRUE(std::isnan(load(&back, dtype, 0)));
      } else {
        ASSERT_EQ(back, pattern) << dtype_name(dtype);
      }
    }
  }
  EXPECT_EQ(rounded(DType::kBFloat16, 1 + 0x1p-8f), 1);
  EXPECT_EQ(rounded(DType::kBFloat16, 1 + 3 * 0x1p-8f), 1 + 0x1p-6f);
  EXPECT_EQ(rounded(DType::kFloat16, 1 + 0x1p-11f), 1);
  EXPECT_EQ(rounded(DType::kFloat16, 1 + 3 * 0x1p-11f), 1 + 0x1p-9f);
  EXPECT_EQ(rounded(DType::kFloat16, 65519.0f), 65504);
  EXPECT_EQ(rounded(DType::kFloat16, 65520.0f), kInf);
  EXPECT_EQ(rounded(DType::kFloat16, 0x1p-25f), 0);
  EXPECT_EQ(rounded(DType::kFloat16, 3 * 0x1p-25f), 0x1p-23f);
}

TEST(Array, strided_tensors) {
  std::vector<float> data = {0, 1, 2, 3, 4, 5};
  Tensor t = Tensor::contiguous(data.data(), DType::kFloat32, {3, 2});
  t.stride = {1, 3};
  EXPECT_EQ(read(t).data, (std::vector<double>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(read(t).index_text(3), "[1, 1]");
  t.stride = {0, 3};
  EXPECT_EQ(read(t).data, (std::vector<double>{0, 3, 0, 3, 0, 3}));
}

Array random_array(std::mt19937_64* random, std::vector<int64_t> shape, double scale = 1) {
  Array a(std::move(shape));
  std::normal_distribution<double> normal;
  for (double& x : a.data) x = scale * normal(*random);
  return a;
}

Call dense_call(uint64_t seed, int64_t nq, int64_t nk, int64_t heads_q = 2, int64_t heads_kv = 1) {
  std::mt19937_64 random(seed);
  Call c;
  c.batch = 2;
  c.heads_q = heads_q;
  c.heads_kv = heads_kv;
  c.head_dim = 4;
  c.head_dim_v = 3;
  c.seqlen_q = nq;
  c.seqlen_k = nk;
  c.begin_q = c.begin_k = {0, 0};
  c.length_q = {nq, nq};
  c.length_k = {nk, nk};
  c.q = random_array(&random, {2, heads_q, nq, 4});
  c.k = random_array(&random, {2, heads_kv, nk, 4});
  c.v = random_array(&random, {2, heads_kv, nk, 3});
  c.dout = random_array(&random, {2, heads_q, nq, 3});
  c.dlse = random_array(&random, {2, heads_q, nq});
  c.softmax_scale = 0.6;
  return c;
}

// Lengths q 3, 0, 4 and k 5, 2, 3.
Call packed_call(uint64_t seed) {
  std::mt19937_64 random(seed);
  Call c;
  c.packed = true;
  c.batch = 3;
  c.heads_q = 4;
  c.heads_kv = 2;
  c.head_dim = 3;
  c.head_dim_v = 5;
  c.seqlen_q = 6;
  c.seqlen_k = 5;
  c.begin_q = {0, 3, 3};
  c.begin_k = {0, 5, 7};
  c.length_q = {3, 0, 4};
  c.length_k = {5, 2, 3};
  c.q = random_array(&random, {7, 4, 3});
  c.k = random_array(&random, {10, 2, 3});
  c.v = random_array(&random, {10, 2, 5});
  c.dout = random_array(&random, {7, 4, 5});
  c.dlse = random_array(&random, {4, 7});
  c.softmax_scale = 0.5;
  return c;
}

// What out and lse weigh: its gradients are what `attention` returns.
double loss(const Call& c) {
  const Result r = attention(c);
  double sum = 0;
  for (int64_t i = 0; i < r.out.numel(); ++i) sum += r.out.data[i] * c.dout.data[i];
  for (int64_t i = 0; c.dlse.defined() && i < r.lse.numel(); ++i) {
    if (r.lse.data[i] != -kInf) sum += r.lse.data[i] * c.dlse.data[i];
  }
  return sum;
}

void expect_gradient(Call c, Array Call::* input, const Array& gradient, const char* name) {
  ASSERT_EQ((c.*input).shape, gradient.shape) << name;
  constexpr double kStep = 1e-5;
  for (int64_t i = 0; i < gradient.numel(); ++i) {
    double& x = (c.*input).data[i];
    const double kept = x;
    if (std::isinf(kept)) {
      EXPECT_EQ(gradient.data[i], 0) << name << gradient.index_text(i);
      continue;
    }
    x = kept + kStep;
    const double above = loss(c);
    x = kept - kStep;
    const double below = loss(c);
    x = kept;
    EXPECT_NEAR(gradient.data[i], (above - below) / (2 * kStep), 2e-8)
        << name << gradient.index_text(i);
  }
}

void expect_all_gradients(const Call& c) {
  const Result r = attention(c);
  expect_gradient(c, &Call::q, r.dq, "dq");
  expect_gradient(c, &Call::k, r.dk, "dk");
  expect_gradient(c, &Call::v, r.dv, "dv");
  if (c.sink.defined()) expect_gradient(c, &Call::sink, r.dsink, "dsink");
  if (c.mask.defined() && !c.mask_is_bool) expect_gradient(c, &Call::mask, r.dmask, "dmask");
}

struct Option {
  const char* name;
  std::function<void(Call*)> set;
};

void add_mask(Call* c, std::vector<int64_t> shape, bool with_hidden_entries) {
  std::mt19937_64 random(99);
  c->mask = random_array(&random, std::move(shape));
  if (!with_hidden_entries) return;
  for (double& x : c->mask.data) {
    if (x < -0.8) x = -kInf;
  }
}

const Option kOptions[] = {
    {"none", [](Call*) {}},
    {"no dlse", [](Call* c) { c->dlse = {}; }},
    {"causal", [](Call* c) { c->window_right = 0; }},
    {"window", [](Call* c) { c->window_left = 1, c->window_right = 1; }},
    {"left window", [](Call* c) { c->window_left = 0; }},
    {"softcap", [](Call* c) { c->softcap = 0.7; }},
    {"sink",
     [](Call* c) {
       std::mt19937_64 random(5);
       c->sink = random_array(&random, {c->heads_q});
     }},
    {"alibi per head",
     [](Call* c) {
       std::mt19937_64 random(6);
       c->alibi_slopes = random_array(&random, {c->heads_q}, 0.3);
     }},
    {"alibi per batch and head",
     [](Call* c) {
       std::mt19937_64 random(7);
       c->alibi_slopes = random_array(&random, {c->batch, c->heads_q}, 0.3);
     }},
    {"full mask",
     [](Call* c) { add_mask(c, {c->batch, c->heads_q, c->seqlen_q, c->seqlen_k}, true); }},
    {"head mask", [](Call* c) { add_mask(c, {c->heads_q, c->seqlen_q, c->seqlen_k}, false); }},
    {"key mask", [](Call* c) { add_mask(c, {1, 1, 1, c->seqlen_k}, true); }},
    {"query mask", [](Call* c) { add_mask(c, {c->seqlen_q, 1}, false); }},
    {"bool mask",
     [](Call* c) {
       add_mask(c, {c->seqlen_q, c->seqlen_k}, false);
       for (double& x : c->mask.data) x = x > -0.3;
       c->mask_is_bool = true;
     }},
    {"dropout", [](Call* c) { c->dropout_p = 0.3, c->dropout_seed = 42, c->dropout_offset = 9; }},
    {"seqused",
     [](Call* c) {
       for (int64_t& n : c->length_q) n -= n > 0;
       c->length_k.back() -= 2;
     }},
    {"zero scale", [](Call* c) { c->softmax_scale = 0; }},
    {"negative scale", [](Call* c) { c->softmax_scale = -0.8; }},
};

class FiniteDifferences : public testing::TestWithParam<int> {};

TEST_P(FiniteDifferences, each_option) {
  const Option& option = kOptions[GetParam()];
  SCOPED_TRACE(option.name);
  for (Call c : {dense_call(1, 4, 5), dense_call(2, 5, 3), packed_call(3)}) {
    option.set(&c);
    expect_all_gradients(c);
  }
}
INSTANTIATE_TEST_SUITE_P(Options, FiniteDifferences,
                         testing::Range(0, static_cast<int>(std::size(kOptions))));

TEST(FiniteDifferencesOf, random_combinations) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::mt19937_64 random(seed);
    const auto draw = [&](int n) { return static_cast<int>(random() % n); };
    Call c = draw(2) ? packed_call(seed) : dense_call(seed, 1 + draw(6), 1 + draw(6), 4, 2);
    std::string names = "seed " + std::to_string(seed);
    for (const Option& option : kOptions) {
      if (draw(3) > 0 || (std::string(option.name) == "seqused" && c.length_k.back() < 2)) continue;
      option.set(&c);
      names += std::string(", ") + option.name;
    }
    SCOPED_TRACE(names);
    expect_all_gradients(c);
  }
}

TEST(Reference, uniform_scores_average_the_visible_values) {
  Call c = dense_call(4, 3, 5);
  for (double& x : c.q.data) x = 0;
  c.window_right = 0;
  c.dout = {};
  const Result r = attention(c);
  for (int64_t i = 0; i < 3; ++i) {  // bottom-right: query i sees i + 3 keys
    double mean = 0;
    for (int64_t j = 0; j < i + 3; ++j) mean += c.v.data[j * 3] / static_cast<double>(i + 3);
    EXPECT_NEAR(r.out.data[i * 3], mean, 1e-14);
    EXPECT_NEAR(r.lse.data[i], std::log(static_cast<double>(i + 3)), 1e-14);
  }
}

TEST(Reference, rows_without_keys_give_zeros) {
  Call c = dense_call(5, 5, 2);
  c.window_right = 0;  // queries 0, 1, 2 see nothing
  c.sink = Array({2}, 0.5);
  const Result r = attention(c);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(r.lse.data[i], -kInf);
    for (int64_t d = 0; d < 3; ++d) EXPECT_EQ(r.out.data[i * 3 + d], 0);
    for (int64_t d = 0; d < 4; ++d) EXPECT_EQ(r.dq.data[i * 4 + d], 0);
  }
  EXPECT_TRUE(std::isfinite(r.lse.data[3]));
}

TEST(Reference, hidden_rows_may_hold_anything) {
  Call clean = dense_call(6, 4, 5), dirty = clean;
  for (Call* c : {&clean, &dirty}) c->length_k = {3, 4}, c->length_q = {2, 4};
  const auto poison = [](Array* a, int64_t heads, int64_t n, int64_t from, int64_t columns) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t x = (h * n + from) * columns; x < (h + 1) * n * columns; ++x) {
        a->data[x] = std::numeric_limits<double>::quiet_NaN();
      }
    }
  };
  poison(&dirty.q, 2, 4, 2, 4);
  poison(&dirty.dout, 2, 4, 2, 3);
  poison(&dirty.k, 1, 5, 3, 4);
  poison(&dirty.v, 1, 5, 3, 3);
  const Result a = attention(clean), b = attention(dirty);
  EXPECT_EQ(a.out.data, b.out.data);
  EXPECT_EQ(a.dq.data, b.dq.data);
  EXPECT_EQ(a.dk.data, b.dk.data);
  EXPECT_EQ(a.dv.data, b.dv.data);
}

// The low-precision peer is close to the oracle, and not equal to it.
TEST(Reference, math_attention_has_the_error_of_its_dtype) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    Call c = dense_call(8, 20, 30);
    c.window_right = 0;
    for (Array* a : {&c.q, &c.k, &c.v, &c.dout}) {
      for (double& x : a->data) x = rounded(dtype, static_cast<float>(x));
    }
    const Result exact = attention(c), math = math_attention(c, dtype);
    for (Array Result::* member : {&Result::out, &Result::dq, &Result::dk, &Result::dv}) {
      double error = 0, size = 0;
      for (int64_t i = 0; i < (exact.*member).numel(); ++i) {
        error = std::max(error, std::abs((exact.*member).data[i] - (math.*member).data[i]));
        size = std::max(size, std::abs((exact.*member).data[i]));
      }
      EXPECT_GT(error / size, unit_roundoff(dtype) / 8) << dtype_name(dtype);
      EXPECT_LT(error / size, unit_roundoff(dtype) * 8) << dtype_name(dtype);
    }
  }
}

}  // namespace
}  // namespace ffpa::reference
