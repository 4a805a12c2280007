// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "sm90/launch.h"

#include <algorithm>

#include "sm90/device.h"
#include "sm90/forward/launch.h"
#include "sm90/report.h"
#include "sm90/schedule/prepare.h"
#include "sm90/tensor_map.h"

namespace ffpa::sm90 {
namespace {

constexpr float kLog2e = 1.44269504088896f;
constexpr int64_t kSectionBytes = 32 << 20;  // K and V of a section stay in the 50 MB of L2
constexpr size_t kWorkspaceAlignment = 256;

struct Instance {
  int head_dim, head_dim_v;
  DType dtype;
  int block_m, block_n;
  int columns[2];  // of V for each warpgroup
  uint32_t v_rows;
  cudaError_t (*launch)(const ForwardParams&, int ctas, cudaStream_t);
  BarrierEntry (*barrier)(int i);
  int barriers;
};

template <class Config, int kHeadDimV = Config::kHeadDim>
constexpr Instance make_instance() {
  using S = typename Config::SharedMemory;
  return {.head_dim = Config::kHeadDim,
          .head_dim_v = kHeadDimV,
          .dtype = Config::kDType,
          .block_m = Config::kBlockM,
          .block_n = Config::kBlockN,
          .columns = {Config::kColumns0, Config::kColumns1},
          .v_rows = Config::kVRows,
          .launch = launch_forward<Config>,
          .barrier = S::entry,
          .barriers = S::kNumBarriers};
}

template <int kHeadDim, int kHeadDimV, DType kDType>
constexpr Instance make_rows_instance() {
  return make_instance<RowsConfig<kHeadDim, kHeadDimV, kDType>, kHeadDimV>();
}

constexpr DType kBf16 = DType::kBFloat16, kFp16 = DType::kFloat16;

// Smallest first: a call gets the first one that holds its head dims.
constexpr Instance kInstances[] = {
    make_rows_instance<64, 64, kBf16>(),        make_rows_instance<64, 64, kFp16>(),
    make_rows_instance<128, 128, kBf16>(),      make_rows_instance<128, 128, kFp16>(),
    make_rows_instance<192, 128, kBf16>(),      make_rows_instance<192, 128, kFp16>(),
    make_rows_instance<192, 192, kBf16>(),      make_rows_instance<192, 192, kFp16>(),
    make_rows_instance<256, 256, kBf16>(),      make_rows_instance<256, 256, kFp16>(),
    make_instance<ForwardConfig<320, kBf16>>(), make_instance<ForwardConfig<320, kFp16>>(),
    make_instance<ForwardConfig<384, kBf16>>(), make_instance<ForwardConfig<384, kFp16>>(),
    make_instance<ForwardConfig<448, kBf16>>(), make_instance<ForwardConfig<448, kFp16>>(),
    make_instance<ForwardConfig<512, kBf16>>(), make_instance<ForwardConfig<512, kFp16>>(),
};

const Instance& instance_of(const Problem& p) {
  for (const Instance& i : kInstances) {
    if (i.dtype == p.dtype && p.head_dim_qk <= i.head_dim && p.head_dim_v <= i.head_dim_v) return i;
  }
  return kInstances[std::size(kInstances) - 1];  // the plan asks for no other head dims
}

int64_t list_capacity(const Problem& p, const Instance& i) {
  return p.packed ? max_sequence_tiles(p.total_q, p.batch, i.block_m) : 0;
}

WorkOrder make_order(const Problem& p, const Instance& i) {
  WorkOrder o{};
  o.heads_kv = int32_t(p.heads_kv);
  o.group = int32_t(p.group());
  o.streams = int32_t(p.packed ? p.heads_kv : p.batch * p.heads_kv);
  o.tiles = ceil_div(int32_t(p.seqlen_q), i.block_m);
  o.descending = p.window_left == kUnbounded && p.window_right != kUnbounded;
  const int64_t rows = p.packed ? p.total_k : p.seqlen_k;
  const int64_t bytes = rows * (p.head_dim_qk + p.head_dim_v) * 2;
  const int64_t most = bytes > 0 ? kSectionBytes / bytes : o.streams;
  // Tiles of one length go stream by stream: the CTAs then walk the same keys in step.
  const bool by_length = p.packed || o.descending;
  o.section_streams = by_length ? int32_t(std::clamp<int64_t>(most, 1, o.streams)) : 1;
  return o;
}

// CTAs of a launch. Sections of causal tiles are worked on by as many as get the same number of
// tiles each: then all CTAs end a section together, and read the keys of the next one in step. That
// counts where a CTA has 64 rows only, and so reads the most for its work.
int grid_size(const WorkOrder& o, const Instance& i, int64_t items, int sm_count) {
  if (items <= sm_count || i.block_m > 64 || !o.descending || o.section_streams >= o.streams) {
    return int(std::min<int64_t>(items, sm_count));
  }
  const int64_t section = int64_t(o.tiles) * o.section_streams * o.group;
  const int64_t even = ceil_div(section, ceil_div(section, int64_t(sm_count)));
  return int(even * 32 >= sm_count * int64_t{31} ? even : sm_count);
}

Status make_maps(const Problem& p, const Instance& i, ForwardParams* x) {
  const int64_t batch = p.packed ? 1 : p.batch;
  const int64_t length_q = p.packed ? p.total_q : p.seqlen_q;
  const int64_t length_k = p.packed ? p.total_k : p.seqlen_k;
  FFPA_RETURN_IF_ERROR(make_ragged_map(
      {"q", p.q, p.dtype, batch, p.heads_q, length_q, p.head_dim_qk, uint32_t(i.block_m), 0}, &x->q,
      &x->q_units));
  if (length_k == 0) return {};  // no tile has keys: K and V are never copied
  x->v_grouped = p.head_dim_v % 64 == 0;
  FFPA_RETURN_IF_ERROR(make_ragged_map(
      {"k", p.k, p.dtype, batch, p.heads_kv, length_k, p.head_dim_qk, uint32_t(i.block_n), 0},
      &x->k, &x->k_units));
  for (int w = 0; w < 2; ++w) {
    const uint32_t groups = x->v_grouped ? uint32_t(i.columns[w] / 64) : 0;
    FFPA_RETURN_IF_ERROR(make_ragged_map(
        {"v", p.v, p.dtype, batch, p.heads_kv, length_k, p.head_dim_v, i.v_rows, groups}, &x->v[w],
        &x->v_units));
  }
  return {};
}

ForwardParams make_params(const Problem& p, const Instance& i) {
  ForwardParams x{};
  x.head_dim_v = int32_t(p.head_dim_v);
  x.sequences = sequences_of(p);
  x.order = make_order(p, i);
  x.window_left = p.window_left;
  x.window_right = p.window_right;
  x.scale = p.softmax_scale * kLog2e;
  if (p.softcap > 0) {
    x.cap_scale = p.softmax_scale / p.softcap;
    x.scale = p.softcap * kLog2e;
  }
  x.sink = p.sink;
  x.sink_stride = p.sink_stride;
  x.out = p.out.data;
  x.out_batch = p.out.batch_stride;
  x.out_head = p.out.head_stride;
  x.out_row = p.out.row_stride;
  const int64_t out_strides = x.out_batch | x.out_head | x.out_row;
  x.out_aligned = reinterpret_cast<uintptr_t>(x.out) % 16 == 0 && out_strides % 8 == 0;
  x.lse = p.lse.defined() ? p.lse.data : nullptr;
  x.lse_batch = p.lse.batch_stride;
  x.lse_head = p.lse.head_stride;
  x.lse_row = p.lse.row_stride;
  x.kernel = uint32_t(&i - kInstances);
  return x;
}

// Fills the work list of a pack, on the device.
Status prepare(const Problem& p, const Instance& i, Workspace workspace, cudaStream_t stream,
               ForwardParams* x) {
  auto* count = static_cast<int32_t*>(workspace.data) + 1;
  auto* list =
      reinterpret_cast<SequenceTile*>(static_cast<char*>(workspace.data) + kWorkspaceAlignment);
  x->list = list;
  x->list_count = count;
  return to_status(prepare_work_list({.sequences = x->sequences,
                                      .window_left = p.window_left,
                                      .window_right = p.window_right,
                                      .block_m = i.block_m,
                                      .block_n = i.block_n,
                                      .list = list,
                                      .count = count,
                                      .capacity = int32_t(list_capacity(p, i)),
                                      .class_shift = class_shift(p.total_k / i.block_n + 1)},
                                     stream));
}

}  // namespace

KernelName forward_kernel_name(uint32_t kernel) {
  if (kernel >= std::size(kInstances)) return {};
  const Instance& i = kInstances[kernel];
  return {"forward, head_dim " + std::to_string(i.head_dim) + ", " + dtype_name(i.dtype), i.barrier,
          i.barriers, "consumer 0\0consumer 1\0producer 0\0producer 1\0scheduler\0"};
}

// {next item, length of the list} and the list.
size_t forward_workspace_bytes(const Problem& p) {
  const size_t bytes =
      kWorkspaceAlignment + size_t(list_capacity(p, instance_of(p))) * sizeof(SequenceTile);
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

Status forward(const Problem& p, Workspace workspace, void* to) {
  const auto stream = static_cast<cudaStream_t>(to);
  const DeviceGuard guard(p.device_index);
  FFPA_RETURN_IF_ERROR(guard.status());
  const Device* device = nullptr;
  FFPA_RETURN_IF_ERROR(current_device(p.device_index, &device));
  FFPA_RETURN_IF_ERROR(check_waits(*device));
  if (p.total_q == 0 || p.heads_q == 0) return {};

  const Instance& i = instance_of(p);
  ForwardParams x = make_params(p, i);
  x.report = device->device_report;
  FFPA_RETURN_IF_ERROR(make_maps(p, i, &x));
  const int64_t tiles = p.packed ? list_capacity(p, i) : x.order.tiles;
  const int64_t items = tiles * x.order.streams * x.order.group;
  if (items >= int64_t{1} << 31) {
    return Status::unsupported(
        "q", "fewer than 2^31 tiles of " + std::to_string(i.block_m) + " rows over all heads",
        std::to_string(items));
  }
  if (items > device->sm_count) {
    x.next_item = static_cast<uint32_t*>(workspace.data);
    FFPA_RETURN_IF_ERROR(to_status(cudaMemsetAsync(x.next_item, 0, sizeof(uint32_t), stream)));
  }
  if (p.packed) FFPA_RETURN_IF_ERROR(prepare(p, i, workspace, stream, &x));
  return to_status(i.launch(x, grid_size(x.order, i, items, device->sm_count), stream));
}

// Unless it was asked for by name: sm80 divides the keys of few queries among CTAs.
std::string refuse_forward(const Problem& p) {
  constexpr int64_t kFewQueries = 16, kManyKeys = 2048, kFewHeads = 64;
  const bool few =
      p.seqlen_q <= kFewQueries && p.seqlen_k >= kManyKeys && p.batch * p.heads_kv <= kFewHeads;
  return few && p.backend == Backend::kAuto ? "few queries over many keys" : "";
}

std::string describe_forward(const Problem& p) {
  const Instance& i = instance_of(p);
  return "wgmma, tiles of " + std::to_string(i.block_m) + " queries x " +
         std::to_string(i.block_n) + " keys, head_dim " + std::to_string(i.head_dim);
}

}  // namespace ffpa::sm90
