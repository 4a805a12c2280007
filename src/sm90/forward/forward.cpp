// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Host side of the forward: workspace, tensor maps, launch. Reads no device memory, waits for
// nothing.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "sm90/device.h"
#include "sm90/forward/instances/instances.h"
#include "sm90/forward/shared_memory.h"
#include "sm90/launch.h"

namespace ffpa::sm90 {
namespace {

constexpr size_t kListHeader = 256;  // the count, by itself in front of the tiles
constexpr float kLog2E = 1.44269504088896f;

// Upper bound of the query tiles of one head, from numbers that the host knows.
int64_t max_tiles(const Problem& p) {
  return p.packed ? p.total_q / Forward512::kBlockM + p.batch
                  : p.batch * ((p.seqlen_q + Forward512::kBlockM - 1) / Forward512::kBlockM);
}

WorkList work_list(Workspace workspace) {
  char* data = static_cast<char*>(workspace.data);
  return {reinterpret_cast<int32_t*>(data), reinterpret_cast<QueryTile*>(data + kListHeader)};
}

Status to_status(cudaError_t error) {
  return error == cudaSuccess ? Status() : Status::runtime(cudaGetErrorString(error));
}

Status make_maps(const Problem& p, ForwardParams* to) {
  using C = Forward512;
  const auto map = [&](const Rows& rows, int64_t heads, int64_t length, int box_rows,
                       int box_groups, const char* name, CUtensorMap* m) {
    return make_tensor_map({&rows, p.batch, heads, length, p.head_dim_qk, p.packed, p.dtype,
                            box_rows, box_groups},
                           name, m);
  };
  const int64_t length_q = p.packed ? p.total_q : p.seqlen_q;
  const int64_t length_k = p.packed ? p.total_k : p.seqlen_k;
  FFPA_RETURN_IF_ERROR(map(p.q, p.heads_q, length_q, C::kBlockM, C::kHeadDim / 64, "q", &to->q));
  FFPA_RETURN_IF_ERROR(map(p.k, p.heads_kv, length_k, C::kBlockN, 1, "k", &to->k));
  return map(p.v, p.heads_kv, length_k, C::kBlockN / C::kVChunks, C::kHeadDim / 2 / 64, "v",
             &to->v);
}

// Query heads whose tiles run side by side. Tiles of one length: one head after the other, so that
// CTAs that run together walk the same K and V in step. Of many lengths: the longest first, over as
// many heads as have their K and V in the L2 cache together.
int64_t heads_at_once(const Problem& p) {
  const bool one_length =
      !p.packed && p.window_left == kUnbounded && p.window_right == kUnbounded;
  if (one_length) return 1;
  constexpr int64_t kCacheBytes = 32 << 20;
  const int64_t bytes = std::max<int64_t>(1, p.seqlen_k) * 2 * (p.head_dim_qk + p.head_dim_v);
  return std::clamp<int64_t>(kCacheBytes / bytes, 1, p.heads_kv) * p.group();
}

ForwardParams scalars(const Problem& p, const WorkList& list) {
  ForwardParams f{};
  f.list = list;
  f.heads = static_cast<int32_t>(p.heads_q);
  f.group = static_cast<int32_t>(p.group());
  f.heads_at_once = static_cast<int32_t>(heads_at_once(p));
  f.packed = p.packed;
  f.window_left = p.window_left;
  f.window_right = p.window_right;
  f.scale_log2 = p.softmax_scale * kLog2E;
  f.sink = p.sink;
  f.sink_stride = p.sink_stride;
  f.out = p.out.data;
  f.out_batch_stride = p.out.batch_stride;
  f.out_row_stride = p.out.row_stride;
  f.out_head_stride = p.out.head_stride;
  f.lse = p.lse.data;
  f.lse_batch_stride = p.lse.batch_stride;
  f.lse_row_stride = p.lse.row_stride;
  f.lse_head_stride = p.lse.head_stride;
  return f;
}

ListParams list_params(const Problem& p, const WorkList& list) {
  return {list,
          p.packed ? p.cu_seqlens_q : nullptr,
          p.packed ? p.cu_seqlens_k : nullptr,
          static_cast<int32_t>(p.batch),
          static_cast<int32_t>(p.seqlen_q),
          static_cast<int32_t>(p.seqlen_k),
          p.window_left,
          p.window_right};
}

bool multiple_of(const Rows& r, int64_t bytes) {
  const int64_t elements = bytes / 2;
  return reinterpret_cast<uintptr_t>(r.data) % bytes == 0 && r.batch_stride % elements == 0 &&
         r.head_stride % elements == 0 && r.row_stride % elements == 0;
}

}  // namespace

std::string refuse_forward(const Problem& p) {
  if (!multiple_of(p.q, 16)) return "rows of q that are not 16-byte aligned";
  if (!multiple_of(p.k, 16)) return "rows of k that are not 16-byte aligned";
  if (!multiple_of(p.v, 16)) return "rows of v that are not 16-byte aligned";
  if (!multiple_of(p.out, 4)) return "rows of out that are not 4-byte aligned";
  if (p.packed && (p.seqlen_q > kRaggedRows || p.seqlen_k > kRaggedRows)) {
    return "packed sequences longer than " + std::to_string(kRaggedRows);
  }
  if (max_tiles(p) * p.heads_q > INT32_MAX) return "more than 2^31 work tiles";
  return "";
}

size_t forward_workspace_bytes(const Problem& p) {
  return kListHeader + static_cast<size_t>(max_tiles(p)) * sizeof(QueryTile);
}

std::string describe_forward(const Problem& p) {
  return "wgmma and TMA, tiles of " + std::to_string(Forward512::kBlockM) + " queries x " +
         std::to_string(Forward512::kBlockN) + " keys, at most " +
         std::to_string(max_tiles(p) * p.heads_q) + " CTAs";
}

Status forward(const Problem& p, Workspace workspace, void* stream) {
  const int64_t ctas = max_tiles(p) * p.heads_q;
  if (ctas == 0) return {};
  const DeviceGuard guard(p.device_index);
  FFPA_RETURN_IF_ERROR(guard.status());
  const WorkList list = work_list(workspace);
  ForwardParams params = scalars(p, list);
  FFPA_RETURN_IF_ERROR(wait_report(p.device_index, &params.report));
  FFPA_RETURN_IF_ERROR(make_maps(p, &params));
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  FFPA_RETURN_IF_ERROR(to_status(launch_list(list_params(p, list), cuda_stream)));
  const auto launch =
      p.dtype == DType::kBFloat16 ? launch_forward_512_bf16 : launch_forward_512_fp16;
  return to_status(launch(params, static_cast<uint32_t>(ctas), cuda_stream));
}

}  // namespace ffpa::sm90
