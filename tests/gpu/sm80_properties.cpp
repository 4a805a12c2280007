// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "gpu/sm80_properties.h"

#include <cstdio>

#include "gpu/device_call.h"
#include "support/compare.h"

namespace ffpa::test {
namespace {

int report(const char* what, const testing::AssertionResult& result) {
  if (!result) std::printf("FAILED %s: %s\n", what, result.message());
  return result ? 0 : 1;
}

int report(const char* what, const Status& status) {
  if (!status.ok()) std::printf("FAILED %s: %s\n", what, status.message().c_str());
  return status.ok() ? 0 : 1;
}

int compare(const char* what, const reference::Result& a, const reference::Result& b) {
  return report(what, same_bits("out", a.out, b.out)) +
         report(what, same_bits("lse", a.lse, b.lse)) + report(what, same_bits("dq", a.dq, b.dq)) +
         report(what, same_bits("dk", a.dk, b.dk)) + report(what, same_bits("dv", a.dv, b.dv));
}

// The rows of a contiguous device tensor [1, heads, rows, columns], `row_stride` elements apart.
class Spread {
 public:
  Spread(const Tensor& t, int64_t row_stride) : from_(t), to_(t) {
    const int64_t rows = t.shape[1] * t.shape[2];
    to_.stride = {rows * row_stride, t.shape[2] * row_stride, row_stride, 1};
    check_cuda(cudaMalloc(&to_.data, rows * row_stride * dtype_bytes(t.dtype)));
  }
  ~Spread() { cudaFree(to_.data); }
  Spread(const Spread&) = delete;

  const Tensor& tensor() const { return to_; }
  void spread() const { copy(to_, from_); }
  void gather() const { copy(from_, to_); }

 private:
  static void copy(const Tensor& to, const Tensor& from) {
    const size_t size = dtype_bytes(from.dtype), width = from.shape[3] * size;
    const int64_t rows = from.shape[1] * from.shape[2];
    for (int64_t r = 0; r < rows; ++r) {
      check_cuda(cudaMemcpy(static_cast<char*>(to.data) + r * to.stride[2] * size,
                            static_cast<char*>(from.data) + r * from.stride[2] * size, width,
                            cudaMemcpyDeviceToDevice));
    }
  }
  Tensor from_, to_;
};

}  // namespace

// The same numbers in rows 2^26 elements apart: offsets reach 2 heads x 40 rows x 2^26 > 2^31.
int check_offsets_past_2_31() {
  Case c;
  c.dtype = DType::kBFloat16;
  c.heads_q = 2;
  c.heads_kv = 1;
  c.lengths_q = {40};
  c.lengths_k = {50};
  c.head_dim = 64;
  c.options.causal = true;
  TestCall call(c);
  DeviceCall device(call, nullptr);
  int faults = report("offsets", device.forward()) + report("offsets", device.backward());
  const reference::Result near = device.results();
  constexpr int64_t kStride = int64_t{1} << 26;
  const Spread q(device.inputs.q, kStride), k(device.inputs.k, kStride),
      v(device.inputs.v, kStride);
  const Spread out(device.outputs.out, kStride), dout(device.saved.dout, kStride);
  const Spread dq(device.gradients.dq, kStride), dk(device.gradients.dk, kStride),
      dv(device.gradients.dv, kStride);
  for (const Spread* s : {&q, &k, &v, &dout}) s->spread();
  device.inputs.q = q.tensor();
  device.inputs.k = k.tensor();
  device.inputs.v = v.tensor();
  device.outputs.out = device.saved.out = out.tensor();
  device.saved.dout = dout.tensor();
  device.gradients.dq = dq.tensor();
  device.gradients.dk = dk.tensor();
  device.gradients.dv = dv.tensor();
  faults += report("offsets", device.forward()) + report("offsets", device.backward());
  for (const Spread* s : {&out, &dq, &dk, &dv}) s->gather();
  return faults + compare("offsets past 2^31", device.results(), near);
}

// Forward and backward of a packed call captured once, replayed with other cu_seqlens of the same
// total, against calls that were launched one by one.
int check_graph_replay() {
  Case c;
  c.dtype = DType::kBFloat16;
  c.packed = true;
  c.heads_q = 4;
  c.heads_kv = 2;
  c.head_dim = 320;
  c.lengths_q = {100, 30, 70, 0};
  c.extra_max_seqlen = 100;
  c.options.causal = true;
  TestCall call(c);
  cudaStream_t stream;
  check_cuda(cudaStreamCreate(&stream));
  int faults = 0;
  {
    DeviceCall captured(call, stream), eager(call, stream);
    size_t bytes[2];
    faults +=
        report("graph", forward_workspace_bytes(captured.inputs, captured.options, &bytes[0]));
    faults += report("graph", backward_workspace_bytes(captured.inputs, captured.options,
                                                       captured.gradients, &bytes[1]));
    void* spaces[2];
    for (int i = 0; i < 2; ++i) check_cuda(cudaMalloc(&spaces[i], bytes[i] + 256));
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    faults += report("capture", ffpa::forward(captured.inputs, captured.options, captured.outputs,
                                              {spaces[0], bytes[0]}, stream));
    faults += report("capture", ffpa::backward(captured.inputs, captured.options, captured.saved,
                                               captured.gradients, {spaces[1], bytes[1]}, stream));
    check_cuda(cudaStreamEndCapture(stream, &graph));
    check_cuda(cudaGraphInstantiate(&executable, graph, 0));
    const int32_t lengths[3][5] = {
        {0, 100, 130, 200, 200}, {0, 1, 1, 180, 200}, {0, 50, 100, 150, 200}};
    for (const auto& cu : lengths) {
      for (const Tensor& t : {captured.inputs.cu_seqlens_q, captured.inputs.cu_seqlens_k,
                              eager.inputs.cu_seqlens_q, eager.inputs.cu_seqlens_k}) {
        check_cuda(cudaMemcpyAsync(t.data, cu, sizeof(cu), cudaMemcpyHostToDevice, stream));
      }
      check_cuda(cudaGraphLaunch(executable, stream));
      faults += report("eager", eager.forward()) + report("eager", eager.backward());
      const reference::Result replayed = captured.results();
      faults += compare("graph replay", replayed, eager.results());
    }
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    for (void* p : spaces) cudaFree(p);
  }
  cudaStreamDestroy(stream);
  return faults;
}

}  // namespace ffpa::test
