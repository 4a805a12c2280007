// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Head dims, head ratios, lengths and options against the oracle, one by one and in random
// combinations.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "support/compare.h"

namespace ffpa::test {
namespace {

constexpr DType kDtypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
constexpr int64_t kHeadDims[] = {8, 40, 64, 72, 104, 128, 256, 320, 512, 640, 1024};

struct Option {
  const char* name;
  std::function<void(Case*)> set;
};

// For two sequences or more, of at least 3 queries and keys in the second one.
const Option kOptions[] = {
    {"none", [](Case*) {}},
    {"causal", [](Case* c) { c->options.causal = true; }},
    {"window", [](Case* c) { c->options.window_left = 5, c->options.window_right = 9; }},
    {"left window", [](Case* c) { c->options.window_left = 4; }},
    {"right window", [](Case* c) { c->options.window_right = 20; }},
    {"causal window", [](Case* c) { c->options.causal = true, c->options.window_left = 16; }},
    {"own key only", [](Case* c) { c->options.window_left = c->options.window_right = 0; }},
    {"softcap", [](Case* c) { c->options.softcap = 1.5, c->q_size = 3; }},
    {"sink", [](Case* c) { c->sink = true; }},
    {"dlse", [](Case* c) { c->dlse = true; }},
    {"alibi", [](Case* c) { c->alibi_rank = 1; }},
    {"alibi per sequence", [](Case* c) { c->alibi_rank = 2; }},
    {"bool mask", [](Case* c) { c->mask = Mask::kBool; }},
    {"bool key mask", [](Case* c) { c->mask = Mask::kBool, c->mask_broadcast = {1, 2}; }},
    {"float32 mask", [](Case* c) { c->mask = Mask::kFloat32, c->mask_broadcast = {0}; }},
    {"own-dtype mask", [](Case* c) { c->mask = Mask::kOfInputDtype; }},
    {"own-dtype mask, float32 gradient",
     [](Case* c) {
       c->mask = Mask::kOfInputDtype, c->mask_broadcast = {1}, c->dmask_float32 = true;
     }},
    {"mask of keys", [](Case* c) { c->mask = Mask::kFloat32, c->mask_broadcast = {0, 1, 2}; }},
    {"mask of queries",
     [](Case* c) { c->mask = Mask::kFloat32, c->mask_rank = 2, c->mask_broadcast = {0, 1, 3}; }},
    {"mask of heads",
     [](Case* c) {
       c->mask = Mask::kFloat32, c->mask_rank = 3, c->mask_broadcast = {2, 3};
       c->mask_hides_keys = false;
     }},
    {"dropout",
     [](Case* c) {
       c->options.dropout_p = 0.3;
       c->options.dropout_seed = 0x123456789abcdefULL + c->seed;
       c->options.dropout_offset = 4 * c->seed + 3;
     }},
    {"seqused_q",
     [](Case* c) {
       c->used_q = c->lengths_q;
       c->used_q[1] -= 3, c->used_q[0] /= 2;
     }},
    {"seqused_k",
     [](Case* c) {
       c->used_k = c->k_lengths();
       c->used_k[1] -= 3, c->used_k[0] = 0;
     }},
    {"zero scale", [](Case* c) { c->options.softmax_scale = 0.0; }},
    {"negative scale", [](Case* c) { c->options.softmax_scale = -0.2; }},
    {"scale 1", [](Case* c) { c->options.softmax_scale = 1.0; }},
    {"v is k", [](Case* c) { c->v_is_k = true, c->head_dim_v = 0; }},
    {"constant v", [](Case* c) { c->constant_v = true; }},
    {"expanded dout", [](Case* c) { c->dout = Gradient::kExpanded; }},
};

Case base_case(DType dtype, bool packed, uint64_t seed) {
  Case c;
  c.seed = seed;
  c.dtype = dtype;
  c.packed = packed;
  c.heads_q = 4;
  c.heads_kv = 2;
  c.lengths_q = packed ? std::vector{19, 43} : std::vector{43, 43};
  c.lengths_k = packed ? std::vector{33, 37} : std::vector{37, 37};
  return c;
}

using Parameters = std::tuple<DType, bool>;
std::string name_of(const testing::TestParamInfo<Parameters>& p) {
  return std::string(dtype_name(std::get<0>(p.param))) +
         (std::get<1>(p.param) ? "_packed" : "_dense");
}

class Matrix : public testing::TestWithParam<Parameters> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  bool packed() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(All, Matrix, testing::Combine(testing::ValuesIn(kDtypes), testing::Bool()),
                         name_of);

TEST_P(Matrix, each_option) {
  uint64_t seed = 100;
  for (const Option& option : kOptions) {
    SCOPED_TRACE(option.name);
    Case c = base_case(dtype(), packed(), ++seed);
    c.head_dim = 64;
    c.head_dim_v = 40;
    option.set(&c);
    check(c);
  }
}

TEST_P(Matrix, each_head_dim) {
  uint64_t seed = 200;
  for (const int64_t head_dim : kHeadDims) {
    for (const bool causal : {false, true}) {
      Case c = base_case(dtype(), packed(), ++seed);
      c.head_dim = head_dim;
      c.options.causal = causal;
      check(c);
    }
  }
}

TEST_P(Matrix, value_head_dim_other_than_key_head_dim) {
  uint64_t seed = 300;
  for (const auto& [qk, v] :
       {std::pair{8, 1024}, {1024, 8}, {64, 128}, {192, 128}, {576, 512}, {72, 104}, {320, 40}}) {
    Case c = base_case(dtype(), packed(), ++seed);
    c.head_dim = qk;
    c.head_dim_v = v;
    c.options.causal = seed % 2;
    check(c);
  }
}

TEST_P(Matrix, each_head_ratio) {
  uint64_t seed = 400;
  for (const int64_t ratio : {1, 3, 5, 6, 7, 8, 12, 16, 64}) {
    Case c = base_case(dtype(), packed(), ++seed);
    c.heads_kv = ratio <= 8 ? 2 : 1;
    c.heads_q = ratio * c.heads_kv;
    c.head_dim = 72;
    c.lengths_q = packed() ? std::vector{9, 23} : std::vector{21};
    c.lengths_k = packed() ? std::vector{14, 1} : std::vector{30};
    c.options.causal = true;
    c.sink = seed % 2;
    check(c);
  }
}

TEST_P(Matrix, tiny_and_ragged_lengths) {
  const std::vector<int32_t> lengths = {0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33};
  uint64_t seed = 500;
  for (const int32_t nk : lengths) {
    Case c = base_case(dtype(), packed(), ++seed);
    c.head_dim = 40;
    c.options.causal = seed % 2;
    for (const int32_t nq : packed() ? lengths : std::vector<int32_t>{1, nk, 17}) {
      if (packed()) continue;
      c.lengths_q = {nq};
      c.lengths_k = {nk};
      check(c);
    }
    if (!packed()) continue;
    c.lengths_q = lengths;
    c.lengths_k.assign(lengths.size(), nk);
    check(c);
  }
}

TEST_P(Matrix, lengths_around_tiles) {
  uint64_t seed = 600;
  for (const int32_t n : {63, 64, 65, 96, 127, 128, 129, 191, 255, 256, 257, 385}) {
    Case c = base_case(dtype(), packed(), ++seed);
    c.heads_q = c.heads_kv = 1;
    c.head_dim = 64;
    c.options.causal = seed % 2;
    c.lengths_q = packed() ? std::vector{n, 3, 1} : std::vector{n};
    c.lengths_k = packed() ? std::vector{n - 1, 5, 130} : std::vector{n + 1};
    check(c);
  }
}

// Every option may meet every other one.
Case random_case(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto draw = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  Case c;
  c.seed = seed;
  c.dtype = kDtypes[draw(3)];
  c.packed = draw(2);
  constexpr int64_t kRatios[] = {1, 2, 3, 4, 8};
  c.heads_kv = 1 + draw(2);
  c.heads_q = c.heads_kv * kRatios[draw(5)];
  c.head_dim = draw(4) ? 8 * (1 + draw(16)) : kHeadDims[draw(11)];
  if (draw(3) == 0) c.head_dim_v = 8 * (1 + draw(24));
  const int64_t batch = 2 + draw(2), longest = draw(5) ? 60 : 200;
  const bool self = draw(2);
  c.lengths_q.clear();
  for (int64_t b = 0; b < batch; ++b) {
    c.lengths_q.push_back(static_cast<int32_t>(3 + draw(longest)));
    c.lengths_k.push_back(self ? c.lengths_q[b] : static_cast<int32_t>(3 + draw(longest)));
  }
  if (!c.packed) {
    c.lengths_q.assign(batch, c.lengths_q[0]);
    c.lengths_k.assign(batch, c.lengths_k[0]);
  } else {
    c.extra_max_seqlen = draw(3) ? 0 : draw(40);
  }
  c.layout = static_cast<Layout>(draw(6));
  for (const Option& option : kOptions) {
    if (draw(5) == 0) option.set(&c);
  }
  if (c.v_is_k) c.constant_v = false;
  c.options.num_threads = static_cast<int>(draw(4));
  return c;
}

TEST(RandomCombinations, against_the_oracle) {
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    check(random_case(seed));
    if (testing::Test::HasFailure()) return;  // one readable failure, with its seed
  }
}

}  // namespace
}  // namespace ffpa::test
