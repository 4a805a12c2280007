// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The Hopper kernels against the float64 oracle: acceptance shapes, options, head dims, layouts.
#include "gpu/hopper_cases.h"

#include <algorithm>
#include <cmath>

#include "gpu/device_call.h"
#include "support/compare.h"

namespace ffpa::test {
namespace {

using Lengths = std::vector<int32_t>;
using reference::Result;

constexpr DType kBf16 = DType::kBFloat16, kFp16 = DType::kFloat16;

Result run_forward(TestCall& call) {
  DeviceCall device(call, nullptr);
  // Rows off multiples of 16 bytes and a scale <= 0 are for another backend.
  const Case& c = call.test_case;
  const bool other = c.layout == Layout::kOffset || c.options.softmax_scale.value_or(1) <= 0;
  if (!other) device.options.backend = Backend::kSm90;
  if (const Status s = device.forward(); !s.ok()) throw std::runtime_error(s.message());
  return device.results();
}

// |out - exact| <= 2^-8 max|V| and cosine > 0.99999.
std::string acceptance_fault(const reference::Array& out, const reference::Array& exact,
                             const reference::Array& v) {
  double most = 0, dot = 0, a = 0, b = 0, error = 0;
  for (double x : v.data) most = std::max(most, std::isfinite(x) ? std::abs(x) : 0);
  for (size_t i = 0; i < out.data.size(); ++i) {
    error = std::max(error, std::abs(out.data[i] - exact.data[i]));
    dot += out.data[i] * exact.data[i], a += out.data[i] * out.data[i];
    b += exact.data[i] * exact.data[i];
  }
  if (!(error <= most / 256)) return "\n    out: error " + std::to_string(error);
  if (b > 0 && !(dot / std::sqrt(a * b) > 0.99999)) return "\n    out: cosine";
  return "";
}

std::string check_forward_case(const Case& c) {
  TestCall call(c);
  const Result got = run_forward(call), again = run_forward(call);
  const reference::Call reference = call.reference_call();
  const Expected expected = expected_of(reference, c.dtype);
  std::string text;
  const auto note = [&](const testing::AssertionResult& r) {
    if (!r) text += std::string("\n    ") + r.message();
  };
  note(close_to("out", got.out, expected.exact.out, expected.math.out, c.dtype));
  note(same_bits("out", got.out, again.out));
  if (got.lse.defined()) {
    note(lse_close_to(got.lse, expected.exact.lse));
    note(same_bits("lse", got.lse, again.lse));
  }
  if (c.dtype == kBf16) text += acceptance_fault(got.out, expected.exact.out, reference.v);
  return text;
}

void copy_on_device(const Tensor& to, const Tensor& from) {
  const size_t bytes = size_t(from.numel() * dtype_bytes(from.dtype));
  check_cuda(cudaMemcpy(to.data, from.data, bytes, cudaMemcpyDeviceToDevice));
}

// A captured call, replayed on other tensors and other cu_seqlens in the same buffers.
std::string check_graph_replay(int head_dim) {
  TestCall captured(packed_case(kBf16, {150, 3, 65}, {}, 2, 1, head_dim, true));
  TestCall replayed(packed_case(kBf16, {0, 68, 150}, {}, 2, 1, head_dim, true));
  cudaStream_t stream;
  check_cuda(cudaStreamCreate(&stream));
  DeviceCall device(captured, stream), other(replayed, stream);
  device.options.backend = Backend::kSm90;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check_cuda(cudaStreamSynchronize(stream));
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  if (const Status s = device.forward(); !s.ok()) return "\n    " + s.message();
  check_cuda(cudaStreamEndCapture(stream, &graph));
  check_cuda(cudaGraphInstantiate(&exec, graph, 0));
  copy_on_device(device.inputs.q, other.inputs.q);
  copy_on_device(device.inputs.k, other.inputs.k);
  copy_on_device(device.inputs.v, other.inputs.v);
  copy_on_device(device.inputs.cu_seqlens_q, other.inputs.cu_seqlens_q);
  copy_on_device(device.inputs.cu_seqlens_k, other.inputs.cu_seqlens_k);
  std::string text;
  for (int launch = 0; launch < 2; ++launch) {
    check_cuda(cudaGraphLaunch(exec, stream));
    const Result got = device.results();
    const Expected expected = expected_of(replayed.reference_call(), kBf16);
    const auto near = close_to("out", got.out, expected.exact.out, expected.math.out, kBf16);
    const auto lse_near = lse_close_to(got.lse, expected.exact.lse);
    if (!near) text += std::string("\n    ") + near.message();
    if (!lse_near) text += std::string("\n    ") + lse_near.message();
  }
  return text;
}

// Forward by whichever kernel serves it, backward by the Hopper one; twice.
Result run_backward(TestCall& call) {
  DeviceCall device(call, nullptr);
  if (const Status s = device.forward(); !s.ok()) throw std::runtime_error(s.message());
  if (call.test_case.layout != Layout::kOffset) device.options.backend = Backend::kSm90;
  if (const Status s = device.backward(); !s.ok()) throw std::runtime_error(s.message());
  return device.results();
}

std::string check_backward_case(const Case& c) {
  TestCall call(c);
  const Result got = run_backward(call), again = run_backward(call);
  const Expected expected = expected_of(call.reference_call(), c.dtype);
  std::string text;
  const auto note = [&](const testing::AssertionResult& r) {
    if (!r) text += std::string("\n    ") + r.message();
  };
  const auto compare = [&](const char* name, reference::Array Result::* of) {
    if (!(got.*of).defined()) return;
    note(close_to(name, got.*of, expected.exact.*of, expected.math.*of, c.dtype));
    note(same_bits(name, got.*of, again.*of));
  };
  compare("dq", &Result::dq);
  compare("dk", &Result::dk);
  compare("dv", &Result::dv);
  compare("dsink", &Result::dsink);
  return text;
}

// Head dims that the Hopper backward serves.
bool has_backward(const Case& c) {
  return c.head_dim % 64 == 0 && c.head_dim >= 320 && c.head_dim <= 512 && !c.no_lse &&
         c.options.softmax_scale.value_or(1) > 0;
}

class List {
 public:
  void add(const std::string& name, const Case& c) {
    if (has_backward(c)) {
      cases.push_back(
          {"backward " + name + ": " + describe(c), [c] { return check_backward_case(c); }});
    }
    Case forward_only = c;
    forward_only.no_dq = forward_only.no_dk = forward_only.no_dv = true;
    cases.push_back(
        {name + ": " + describe(c), [forward_only] { return check_forward_case(forward_only); }});
  }
  // bf16 and fp16, causal and not.
  void add_four(const std::string& name, const Lengths& q, const Lengths& k, int hq, int hkv,
                int d) {
    for (DType dtype : {kBf16, kFp16}) {
      for (bool causal : {false, true}) add(name, packed_case(dtype, q, k, hq, hkv, d, causal));
    }
  }

  std::vector<GpuCase> cases;
};

void add_acceptance_packed(List* l) {
  l->add("acceptance_1", packed_case(kBf16, {128}, {}, 2, 2, 512, true));
  l->add("acceptance_2", packed_case(kBf16, {128}, {}, 32, 4, 512, true));
  l->add("acceptance_3", packed_case(kBf16, {512}, {}, 32, 4, 512, true));
  l->add_four("acceptance_6", {130, 512, 7, 1024}, {}, 4, 4, 512);
  l->add_four("acceptance_7", {64, 200, 1}, {512, 333, 1024}, 4, 4, 512);
  l->add_four("acceptance_8", {512, 700, 300}, {64, 129, 1}, 4, 4, 512);
  l->add_four("acceptance_9", {128, 256}, {0, 256}, 2, 2, 512);
  l->add_four("acceptance_11", {1, 127, 128, 129, 255}, {}, 2, 2, 512);
  l->add("acceptance_12", packed_case(kBf16, {777}, {}, 2, 2, 512, true));
  l->add("acceptance_13", packed_case(kBf16, {255, 1024}, {}, 8, 2, 512, true));
  l->add("acceptance_13", packed_case(kBf16, {300, 129}, {}, 8, 1, 512, true));
  l->add_four("acceptance_18", {32, 17, 64}, {}, 2, 2, 320);
}

void add_acceptance_dense(List* l) {
  for (int d : {320, 384, 512}) {
    l->add("acceptance_19", dense_case(d == 384 ? kFp16 : kBf16, 1, 1024, 1024, 8, 8, d, d == 320));
    l->add("acceptance_19", dense_case(d == 384 ? kBf16 : kFp16, 1, 1024, 1024, 4, 1, d, d != 320));
  }
  for (int n : {65, 129, 1023}) {
    for (bool causal : {false, true}) {
      l->add("acceptance_22", dense_case(kBf16, 1, n, n, 4, 4, 512, causal));
    }
  }
  for (bool causal : {true, false}) {
    l->add("acceptance_23", dense_case(kBf16, 1, 256, 256, 2, 2, 512, causal));
    l->add("acceptance_23", dense_case(kBf16, 1, 384, 384, 4, 2, 512, causal));
    l->add("acceptance_23", dense_case(kBf16, 1, 200, 200, 2, 2, 512, causal));
    l->add("acceptance_23", dense_case(kBf16, 2, 128, 128, 4, 4, 512, causal));
  }
  l->add("acceptance_24", dense_case(kBf16, 1, 128, 320, 2, 2, 512, true));
  l->add("acceptance_25", dense_case(kBf16, 1, 320, 128, 2, 2, 512, true));
  l->add("acceptance_26", dense_case(kBf16, 1, 2048, 2048, 2, 2, 512, true));
  l->add("acceptance_27", dense_case(kBf16, 1, 2048, 2048, 4, 1, 512, true));
  l->add("acceptance_27", dense_case(kBf16, 2, 1024, 1024, 4, 2, 512, true));
  for (const auto& [hq, hkv] :
       {std::pair{3, 1}, {5, 1}, {12, 2}, {28, 4}, {24, 2}, {64, 4}, {64, 1}}) {
    l->add("acceptance_28", dense_case(kBf16, 1, 300, 300, hq, hkv, 512, true));
  }
  for (const auto& [nq, nk] : {std::pair{1, 1}, {1, 64}, {64, 1}}) {
    l->add("acceptance_30", dense_case(kBf16, 1, nq, nk, 2, 2, 512));
  }
  l->add("acceptance_32", dense_case(kBf16, 1, 512, 1024, 8, 2, 320, true));
  l->add("acceptance_32", dense_case(kBf16, 1, 1024, 4096, 1, 1, 512, true));
  for (int n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 63, 64, 127, 511, 512}) {
    l->add("acceptance_35", dense_case(n % 2 ? kBf16 : kFp16, 1, n, n, 1, 1, 512, true));
  }
}

struct Option {
  const char* name;
  std::function<void(Case*)> set;
};
const Option kOptions[] = {
    {"window", [](Case* c) { c->options.window_left = 50, c->options.window_right = 90; }},
    {"left_window", [](Case* c) { c->options.window_left = 40; }},
    {"right_window", [](Case* c) { c->options.window_right = 70; }},
    {"causal_window", [](Case* c) { c->options.causal = true, c->options.window_left = 130; }},
    {"own_key_only", [](Case* c) { c->options.window_left = c->options.window_right = 0; }},
    {"softcap", [](Case* c) { c->options.softcap = 1.5, c->q_size = 3; }},
    {"softcap_50", [](Case* c) { c->options.softcap = 50, c->options.softmax_scale = 1.0; }},
    {"sink", [](Case* c) { c->sink = true, c->options.causal = true; }},
    {"seqused_q", [](Case* c) { c->used_q = c->lengths_q, c->used_q[1] -= 3, c->used_q[0] /= 2; }},
    {"seqused_k", [](Case* c) { c->used_k = c->k_lengths(), c->used_k[1] -= 3, c->used_k[0] = 0; }},
    {"scale_1", [](Case* c) { c->options.softmax_scale = 1.0, c->options.causal = true; }},
    {"scale_0", [](Case* c) { c->options.softmax_scale = 0.0; }},
    {"scale_negative", [](Case* c) { c->options.softmax_scale = -0.1; }},
    {"v_is_k", [](Case* c) { c->v_is_k = true; }},
    {"no_lse", [](Case* c) { c->no_lse = true; }},
    {"dlse", [](Case* c) { c->dlse = true, c->options.causal = true; }},
};

void add_options(List* l) {
  uint64_t seed = 100;
  for (int d : {64, 128, 192, 256, 320, 384, 448, 512}) {
    for (bool packed : {false, true}) {
      for (const Option& option : kOptions) {
        Case c;
        c.seed = ++seed;
        c.dtype = seed % 2 ? kBf16 : kFp16;
        c.packed = packed;
        c.heads_q = 6, c.heads_kv = 2;
        c.head_dim = d;
        c.lengths_q = packed ? Lengths{190, 243} : Lengths{243, 243};
        c.lengths_k = packed ? Lengths{333, 270} : Lengths{370, 370};
        option.set(&c);
        l->add(option.name, c);
      }
      for (int layout = 0; layout < 6; ++layout) {
        Case c;
        c.seed = ++seed;
        c.dtype = seed % 2 ? kBf16 : kFp16;
        c.packed = packed;
        c.heads_q = 4, c.heads_kv = 2;
        c.head_dim = d;
        c.lengths_q = packed ? Lengths{3, 0, 143, 70} : Lengths{143, 143};
        c.layout = static_cast<Layout>(layout);
        c.options.causal = true;
        l->add("layout", c);
      }
    }
  }
}

void add_head_dims(List* l) {
  for (int d = 8; d <= 256; d += d % 64 == 0 ? 8 : 16) {
    Case c = packed_case(d % 3 ? kBf16 : kFp16, {150, 3, 65, 290}, {}, 2, 1, d, d % 5 == 0);
    l->add("head_dim", c);
  }
  for (const auto& [d, dv] : {std::pair{192, 128}, {192, 64}, {256, 128}, {128, 72}, {64, 8}}) {
    Case c = packed_case(kBf16, {150, 3, 300}, {333, 70, 300}, 4, 2, d, dv % 3 == 0);
    c.head_dim_v = dv;
    l->add("head_dim_v", c);
    c = dense_case(kFp16, 2, 200, 400, 4, 1, d, true);
    c.head_dim_v = dv;
    l->add("head_dim_v", c);
  }
  for (int d = 264; d <= 504; d += d % 64 == 0 ? 8 : 24) {
    Case c = packed_case(d % 16 ? kBf16 : kFp16, {150, 3, 65}, {}, 2, 1, d, d % 3 == 0);
    l->add("head_dim", c);
  }
}

// Head dims up to 256 have tiles and blocks of their own: lengths around those, several tiles a
// CTA.
void add_rows(List* l) {
  for (int d : {64, 128, 192, 256}) {
    l->add_four("rows", {128, 127, 1, 129, 400}, {80, 81, 176, 177, 531}, 6, 2, d);
    l->add_four("rows_no_keys", {128, 256}, {0, 256}, 2, 2, d);
    for (bool causal : {false, true}) {
      l->add("rows_many_tiles", dense_case(kBf16, 2, 520, 520, 24, 2, d, causal));
      for (int heads : {1, 3, 5, 7, 16}) {
        l->add("rows_group", dense_case(kFp16, 1, 300, 300, heads, 1, d, causal));
      }
    }
    for (int n : {1, 2, 15, 16, 17, 63, 65, 111, 112, 113, 175, 176, 177}) {
      l->add("rows_length", dense_case(n % 2 ? kBf16 : kFp16, 1, n, n, 1, 1, d, true));
    }
  }
}

void add_many_tiles(List* l) {
  for (int d : {320, 448, 512}) {  // more tiles than CTAs: some walk their keys backwards
    l->add("many_tiles", dense_case(kBf16, 1, 600, 600, 24, 2, d, true));
  }
  for (int d : {64, 128, 256, 512}) {
    l->add("tiny_sequences", packed_case(kBf16, Lengths(1500, 16), {}, 2, 1, d, true));
  }
}

}  // namespace

std::vector<GpuCase> hopper_cases() {
  List l;
  add_acceptance_packed(&l);
  add_acceptance_dense(&l);
  add_options(&l);
  add_head_dims(&l);
  add_rows(&l);
  add_many_tiles(&l);
  for (int d : {128, 256, 512}) {
    l.cases.push_back(
        {"graph_replay: head_dim " + std::to_string(d), [d] { return check_graph_replay(d); }});
  }
  return l.cases;
}

}  // namespace ffpa::test
