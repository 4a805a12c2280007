// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The portable GPU path against the float64 oracle: options x dense/packed x head dims, every
// result of forward and backward, twice for the same bits. Cases run on all threads at once, each
// on its own stream.
//   sm80_tests [--quick] [--seconds N]
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>

#include "gpu/device_call.h"
#include "gpu/sm80_properties.h"
#include "support/compare.h"

namespace ffpa::test {
namespace {

using reference::Result;

struct Option {
  const char* name;
  std::function<void(Case*)> set;
};

// For two sequences or more, of at least 3 queries and keys in the second one. dlse comes with
// options whose gradient is a sum over all keys of a query: it is 0 without dlse, and what is left
// of it is the rounding of `out`.
const Option kOptions[] = {
    {"none", [](Case*) {}},
    {"causal", [](Case* c) { c->options.causal = true; }},
    {"window", [](Case* c) { c->options.window_left = 5, c->options.window_right = 9; }},
    {"left window", [](Case* c) { c->options.window_left = 4; }},
    {"right window", [](Case* c) { c->options.window_right = 20; }},
    {"causal window", [](Case* c) { c->options.causal = true, c->options.window_left = 16; }},
    {"own key only", [](Case* c) { c->options.window_left = c->options.window_right = 0; }},
    {"softcap", [](Case* c) { c->options.softcap = 1.5, c->q_size = 3; }},
    {"sink", [](Case* c) { c->sink = c->dlse = true; }},
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
       c->mask_hides_keys = false, c->dlse = true;
     }},
    {"dropout",
     [](Case* c) {
       c->options.dropout_p = 0.3;
       c->options.dropout_seed = 0x123456789abcdefULL + c->seed;
       c->options.dropout_offset = 4 * c->seed + 3;
     }},
    {"seqused_q", [](Case* c) { c->used_q = c->lengths_q, c->used_q[1] -= 3, c->used_q[0] /= 2; }},
    {"seqused_k",
     [](Case* c) {
       c->used_k = c->k_lengths();
       c->used_k[1] -= 3, c->used_k[0] = 0;
     }},
    {"zero scale", [](Case* c) { c->options.softmax_scale = 0.0; }},
    {"negative scale", [](Case* c) { c->options.softmax_scale = -0.2; }},
    {"v is k", [](Case* c) { c->v_is_k = true, c->head_dim_v = 0; }},
    {"expanded dout", [](Case* c) { c->dout = Gradient::kExpanded; }},
};

Case base_case(DType dtype, bool packed, uint64_t seed) {
  Case c;
  c.seed = seed;
  c.dtype = dtype;
  c.packed = packed;
  c.heads_q = 4;
  c.heads_kv = 2;
  c.lengths_q = packed ? std::vector{19, 143} : std::vector{143, 143};
  c.lengths_k = packed ? std::vector{33, 170} : std::vector{170, 170};
  return c;
}

// Every option may meet every other one.
Case random_case(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto draw = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  Case c;
  c.seed = seed;
  c.dtype = draw(2) ? DType::kFloat16 : DType::kBFloat16;
  c.packed = draw(2);
  constexpr int64_t kRatios[] = {1, 2, 3, 4, 8}, kDims[] = {64, 128, 256, 320, 512, 640, 1024};
  c.heads_kv = 1 + draw(2);
  c.heads_q = c.heads_kv * kRatios[draw(5)];
  c.head_dim = draw(3) ? 8 * (1 + draw(16)) : kDims[draw(7)];
  if (draw(3) == 0) c.head_dim_v = 8 * (1 + draw(24));
  const int64_t batch = 2 + draw(2), longest = draw(4) ? 100 : 300;
  const bool self = draw(2);
  c.lengths_q.clear();
  for (int64_t b = 0; b < batch; ++b) {
    c.lengths_q.push_back(static_cast<int32_t>(3 + draw(draw(4) ? longest : 12)));
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
    if (draw(6) == 0) option.set(&c);
  }
  return c;
}

void add_options(std::vector<Case>* cases) {
  uint64_t seed = 1000;
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const bool packed : {false, true}) {
      for (const auto& [d, dv] :
           {std::pair{64, 40}, {80, 80}, {256, 0}, {320, 0}, {512, 0}, {640, 0}, {1024, 0}}) {
        for (const Option& option : kOptions) {
          Case c = base_case(dtype, packed, ++seed);
          c.head_dim = d;
          c.head_dim_v = dv;
          if (d >= 512) c.heads_q = 2, c.heads_kv = 1;
          option.set(&c);
          cases->push_back(c);
        }
      }
    }
  }
}

void add_shapes(std::vector<Case>* cases) {
  uint64_t seed = 5000;
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const bool packed : {false, true}) {
      for (int64_t d :
           {8, 16, 24, 32, 40, 48, 56, 64, 72, 104, 128, 136, 192, 264, 448, 576, 768}) {
        Case c = base_case(dtype, packed, ++seed);
        c.head_dim = d;
        c.options.causal = seed % 2;
        cases->push_back(c);
      }
      for (const auto& [qk, v] : {std::pair{8, 1024},
                                  {1024, 8},
                                  {192, 128},
                                  {576, 512},
                                  {72, 104},
                                  {320, 40},
                                  {640, 64}}) {
        Case c = base_case(dtype, packed, ++seed);
        c.head_dim = qk;
        c.head_dim_v = v;
        c.options.causal = seed % 2;
        cases->push_back(c);
      }
      for (int64_t ratio : {3, 5, 7, 12, 16, 64}) {
        for (int32_t nq : {1, 5, 21, 100}) {
          Case c = base_case(dtype, packed, ++seed);
          c.heads_kv = ratio <= 8 ? 2 : 1;
          c.heads_q = ratio * c.heads_kv;
          c.head_dim = seed % 2 ? 72 : 320;
          c.lengths_q = packed ? std::vector{nq, 3} : std::vector{nq};
          c.lengths_k = packed ? std::vector{150, 1} : std::vector{130};
          c.options.causal = true;
          cases->push_back(c);
        }
      }
      for (int32_t n : {63, 64, 65, 127, 128, 129, 255, 257, 385}) {
        Case c = base_case(dtype, packed, ++seed);
        c.heads_q = c.heads_kv = 1;
        c.head_dim = seed % 3 == 0 ? 64 : seed % 3 == 1 ? 512 : 640;
        c.options.causal = seed % 2;
        c.lengths_q = packed ? std::vector{n, 3, 1, 0, 70} : std::vector{n};
        c.lengths_k = packed ? std::vector{n - 1, 5, 130, 20, 0} : std::vector{n + 1};
        cases->push_back(c);
      }
      const std::vector<int32_t> tiny = {0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33};
      for (int32_t n : tiny) {
        Case c = base_case(dtype, packed, ++seed);
        c.head_dim = 512;
        c.heads_q = 2;
        c.heads_kv = 1;
        c.options.causal = seed % 2;
        c.lengths_q = packed ? tiny : std::vector{n};
        c.lengths_k = packed ? std::vector<int32_t>(tiny.size(), n) : std::vector{n ? 17 : 3};
        cases->push_back(c);
      }
    }
  }
  // Few queries, many keys: the keys are split.
  for (const bool packed : {false, true}) {
    for (const auto& [nq, heads, d] :
         {std::tuple{1, 8, 512}, {1, 1, 64}, {3, 4, 256}, {16, 2, 640}, {7, 5, 320}}) {
      for (const Option& option : kOptions) {
        ++seed;
        Case c = base_case(seed % 2 ? DType::kBFloat16 : DType::kFloat16, packed, seed);
        c.heads_q = heads;
        c.heads_kv = 1;
        c.head_dim = d;
        c.lengths_q = {nq + (packed ? 1 : 4), nq + 4};
        c.lengths_k = {packed ? 300 : 900, 900};
        option.set(&c);
        cases->push_back(c);
      }
    }
  }
  // D > 512, causal, Nq != Nk, longer.
  for (int64_t d : {640, 1024}) {
    for (const auto& [nq, nk] : {std::pair{700, 1000}, {600, 300}}) {
      Case c = base_case(DType::kBFloat16, false, ++seed);
      c.heads_q = 2;
      c.heads_kv = 1;
      c.head_dim = d;
      c.lengths_q = {nq};
      c.lengths_k = {nk};
      c.options.causal = true;
      cases->push_back(c);
    }
  }
}

std::vector<Case> all_cases(bool quick) {
  std::vector<Case> cases;
  add_shapes(&cases);
  add_options(&cases);
  for (uint64_t seed = 1; seed <= 400; ++seed) cases.push_back(random_case(seed));
  if (quick) {
    std::vector<Case> some;
    for (size_t i = 0; i < cases.size(); i += 29) some.push_back(cases[i]);
    return some;
  }
  return cases;
}

// ---- running ------------------------------------------------------------------------------------

struct Named {
  const char* name;
  reference::Array Result::* member;
};
constexpr Named kResults[] = {
    {"out", &Result::out}, {"lse", &Result::lse},     {"dq", &Result::dq},      {"dk", &Result::dk},
    {"dv", &Result::dv},   {"dsink", &Result::dsink}, {"dmask", &Result::dmask}};

Result run_on_device(TestCall& call, cudaStream_t stream) {
  DeviceCall device(call, stream);
  for (const Status& s : {device.forward(), device.backward()}) {
    if (!s.ok()) throw std::runtime_error(s.message());
  }
  return device.results();
}

// Text of every fault.
std::string faults_of(const Case& c, cudaStream_t stream) {
  std::string text;
  try {
    TestCall call(c);
    const Result got = run_on_device(call, stream), again = run_on_device(call, stream);
    const Expected expected = expected_of(call.reference_call(), c.dtype);
    for (const Named& r : kResults) {
      const reference::Array& x = got.*r.member;
      if (!x.defined()) continue;
      const auto close = r.member == &Result::lse ? lse_close_to(x, expected.exact.lse)
                                                  : close_to(r.name, x, expected.exact.*r.member,
                                                             expected.math.*r.member, c.dtype);
      if (!close) text += std::string("\n    ") + close.message();
      const auto same = same_bits(r.name, x, again.*r.member);
      if (!same) text += std::string("\n    NOT THE SAME BITS: ") + same.message();
    }
  } catch (const std::exception& e) {
    text = std::string("\n    ") + e.what();
  }
  return text.empty() ? text : describe(c) + text;
}

int run_all(bool quick, double seconds) {
  const std::vector<Case> cases = all_cases(quick);
  const auto start = std::chrono::steady_clock::now();
  std::atomic<size_t> next = 0, done = 0, failed = 0;
  std::mutex mutex;
  const auto work = [&] {
    cudaStream_t stream;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (size_t i = next++; i < cases.size(); i = next++) {
      const std::chrono::duration<double> used = std::chrono::steady_clock::now() - start;
      if (used.count() > seconds) break;
      const std::string text = faults_of(cases[i], stream);
      ++done;
      if (text.empty()) continue;
      if (++failed <= 40) {
        const std::scoped_lock lock(mutex);
        std::printf("FAILED %s\n", text.substr(0, 900).c_str());
        std::fflush(stdout);
      }
    }
    cudaStreamDestroy(stream);
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t) {
    threads.emplace_back(work);
  }
  for (std::thread& t : threads) t.join();
  const std::chrono::duration<double> used = std::chrono::steady_clock::now() - start;
  std::printf("sm80_tests: %zu of %zu cases run, %zu failed, %.1f s\n", done.load(), cases.size(),
              failed.load(), used.count());
  return failed == 0 && done == cases.size() ? 0 : 1;
}

}  // namespace
}  // namespace ffpa::test

int main(int argc, char** argv) {
  bool quick = false;
  double seconds = 1e9;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--quick")) quick = true;
    if (!std::strcmp(argv[i], "--seconds") && i + 1 < argc) seconds = std::atof(argv[++i]);
  }
  const int faults = ffpa::test::run_all(quick, seconds);
  if (quick) return faults;
  const int properties = ffpa::test::check_graph_replay() + ffpa::test::check_offsets_past_2_31();
  std::printf("sm80_tests: %d faults of graph replay and far offsets\n", properties);
  return faults + properties;
}
