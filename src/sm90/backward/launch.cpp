// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The backward on the host: chunks of work that fit the dS workspace, and their launches.
#include "sm80/launch.h"

#include <algorithm>
#include <limits>

#include "gpu/carver.h"
#include "sm80/prepare/prepare.h"
#include "sm90/backward/blocks.h"
#include "sm90/backward/launch.h"
#include "sm90/backward/prepare.h"
#include "sm90/device.h"
#include "sm90/launch.h"
#include "sm90/report.h"
#include "sm90/schedule/prepare.h"
#include "sm90/tensor_map.h"

namespace ffpa::sm90 {
namespace {

constexpr float kLog2e = 1.44269504088896f;
constexpr int64_t kTileBytes = 64 * 64 * 2;
// Of the default limit.
constexpr int64_t kLeastWorkspace = int64_t{16} << 20, kMostWorkspace = int64_t{1} << 30;

struct Instance {
  int head_dim;
  DType dtype;
  int columns;
  cudaError_t (*dkdv)(const DkdvParams&, int pairs, cudaStream_t);
  cudaError_t (*dq)(const DqParams&, int64_t tiles, cudaStream_t);
  BarrierEntry (*barrier[2])(int i);
  int barriers[2];
};

template <int kHeadDim, DType kDType>
constexpr Instance make_instance() {
  using Dkdv = DkdvConfig<kHeadDim, kDType>;
  using Dq = DqConfig<kHeadDim, kDType>;
  return {.head_dim = kHeadDim,
          .dtype = kDType,
          .columns = Dkdv::kColumns,
          .dkdv = launch_dkdv<Dkdv>,
          .dq = launch_dq<Dq>,
          .barrier = {Dkdv::SharedMemory::entry, Dq::SharedMemory::entry},
          .barriers = {Dkdv::SharedMemory::kNumBarriers, Dq::SharedMemory::kNumBarriers}};
}

constexpr Instance kInstances[] = {
    make_instance<320, DType::kBFloat16>(), make_instance<320, DType::kFloat16>(),
    make_instance<384, DType::kBFloat16>(), make_instance<384, DType::kFloat16>(),
    make_instance<448, DType::kBFloat16>(), make_instance<448, DType::kFloat16>(),
    make_instance<512, DType::kBFloat16>(), make_instance<512, DType::kFloat16>(),
};

const Instance& instance_of(const Problem& p) {
  for (const Instance& i : kInstances) {
    if (i.dtype == p.dtype && p.head_dim_qk <= i.head_dim) return i;
  }
  return kInstances[std::size(kInstances) - 1];  // the plan asks for no other head dims
}

int64_t ceil64(int64_t rows) { return (rows + 63) / 64; }
// Most key tiles of 64 rows, without those of rows that belong to no sequence.
int64_t key_tiles_of(const Problem& p) {
  return p.packed ? p.total_k / 64 + p.batch : p.batch * ceil64(p.seqlen_k);
}

// Rows of the table of key tiles: between sequences some are free (padded_tile).
int64_t table_rows(const Problem& p) { return ceil64(p.total_k) + p.batch + 2; }

// Most pairs of a key tile and a query block of a head, over all sequences.
int64_t most_tiles(const Problem& p) {
  // max_seqlen may be larger than any sequence can be.
  const int64_t key_tiles = key_tiles_of(p), blocks = ceil64(std::min(p.seqlen_q, p.total_q));
  const bool used = p.seqused_q || p.seqused_k;
  if (!p.packed && !used) {
    const Visibility v{int32_t(p.seqlen_q), int32_t(p.seqlen_k), p.window_left, p.window_right};
    int64_t tiles = 0;
    for (int32_t key = 0; key < v.len_k; key += 64) tiles += query_tiles(v, key, 64, 64).count();
    return tiles * p.batch;
  }
  int64_t most = key_tiles * blocks;
  // Queries and keys of the same sequences: half of a square each.
  const bool self = p.packed && p.cu_seqlens_q == p.cu_seqlens_k;
  if (self && !used && p.window_right == 0) most = key_tiles * (blocks + 1) / 2;
  if (p.window_left != kUnbounded && p.window_right != kUnbounded) {
    const int64_t width = int64_t{p.window_left} + p.window_right;
    most = std::min(most, key_tiles * ((width + 64) / 64 + 2));
  }
  return most;
}

// How the work is cut so that dS fits: all heads at once, some KV heads, or one KV head and ranges
// of query blocks, whose dK and dV are kept in float32 in between.
struct Plan {
  int64_t kv_heads, blocks;  // of a chunk
  int64_t tiles_per_head;
  int64_t partial_floats;
  bool possible;
};

Plan make_plan(const Problem& p, const Instance& i, int64_t available) {
  Plan plan{};
  available = std::max<int64_t>(available, 0);
  const int64_t blocks = ceil64(p.seqlen_q), tiles = most_tiles(p);
  const int64_t head_bytes = std::max<int64_t>(tiles, 1) * kTileBytes * p.group();
  const int64_t heads = std::min(available / head_bytes, p.heads_kv);
  if (heads > 0) {
    const int64_t chunks = (p.heads_kv + heads - 1) / heads;
    return {(p.heads_kv + chunks - 1) / chunks, blocks, tiles, 0, true};
  }
  plan.kv_heads = 1;
  plan.partial_floats = table_rows(p) * 4 * (i.columns / 2) * 128;
  const int64_t left = available - plan.partial_floats * int64_t(sizeof(float));
  const int64_t row_bytes = std::max<int64_t>(key_tiles_of(p), 1) * kTileBytes * p.group();
  plan.blocks = std::min(left / row_bytes / 2 * 2, blocks);
  if (plan.blocks >= 2) {  // ranges of one length: a dq kernel of few tiles leaves SMs idle
    const int64_t ranges = (blocks + plan.blocks - 1) / plan.blocks;
    plan.blocks = std::min(plan.blocks, ((blocks + ranges - 1) / ranges + 1) / 2 * 2);
  }
  plan.tiles_per_head = plan.blocks * key_tiles_of(p);
  plan.possible = plan.blocks >= 2;
  return plan;
}

struct Scratch {
  int64_t key_tiles, statistics_tiles, dq_tiles;
  int32_t* counts;  // of the list of key tiles, of that of query tiles
  SequenceTile *key_list, *query_list;
  int32_t* offset;
  float *delta, *lse2, *delta_padded;

  Scratch(const Problem& p, Carver& carver)
      : key_tiles(table_rows(p)),
        statistics_tiles(ceil64(p.total_q) + p.batch + 2),
        dq_tiles(p.packed ? max_sequence_tiles(p.total_q, p.batch, 128)
                          : p.batch * ((p.seqlen_q + 127) / 128)),
        counts(carver.take<int32_t>(64)),
        key_list(carver.take<SequenceTile>(key_tiles)),
        query_list(carver.take<SequenceTile>(dq_tiles)),
        offset(carver.take<int32_t>(key_tiles)),
        delta(carver.take<float>(p.heads_q * p.total_q)),
        lse2(carver.take<float>(p.heads_q * statistics_tiles * 64)),
        delta_padded(carver.take<float>(p.heads_q * statistics_tiles * 64)) {}
};

// Bytes for dS and the sums between chunks: by default no more than the gradients take.
int64_t available_bytes(const Problem& p) {
  if (p.workspace_limit >= 0) {
    Carver carver(nullptr);
    Scratch(p, carver);
    return p.workspace_limit - carver.used();
  }
  const int64_t gradients =
      (p.total_q * p.heads_q + 2 * p.total_k * p.heads_kv) * p.head_dim_qk * 2;
  return std::clamp(gradients, kLeastWorkspace, kMostWorkspace);
}

Plan make_plan(const Problem& p) { return make_plan(p, instance_of(p), available_bytes(p)); }

struct Call {
  const Problem& p;
  const Instance& i;
  Plan plan;
  Scratch scratch;
  uint16_t* ds;
  float* partial;
  int64_t bytes;

  Call(const Problem& problem, void* workspace)
      : Call(problem, instance_of(problem), Carver(workspace)) {}

 private:
  Call(const Problem& problem, const Instance& instance, Carver carver)
      : p(problem), i(instance), plan(make_plan(problem)), scratch(problem, carver) {
    ds = carver.take<uint16_t>(plan.kv_heads * p.group() * plan.tiles_per_head * 4096);
    partial = carver.take<float>(plan.partial_floats);
    bytes = carver.used();
  }
};

bool aligned(const Rows& r) {
  const int64_t strides = r.batch_stride | r.head_stride | r.row_stride;
  return reinterpret_cast<uintptr_t>(r.data) % 16 == 0 && strides % 8 == 0;
}

GradientRows gradient_rows(const Rows& r) {
  return {r.defined() ? r.data : nullptr, r.batch_stride, r.head_stride, r.row_stride, aligned(r)};
}

struct Map {
  const char* name;
  const Rows& rows;
  bool query;
  uint32_t box_rows, groups;
};

Status make_map(const Problem& p, const Map& m, CUtensorMap* map, RaggedUnits* units) {
  const int64_t length =
      p.packed ? (m.query ? p.total_q : p.total_k) : (m.query ? p.seqlen_q : p.seqlen_k);
  return make_ragged_map(
      {m.name, m.rows, p.dtype, p.packed ? 1 : p.batch, m.query ? p.heads_q : p.heads_kv, length,
       p.head_dim_qk, m.box_rows, m.groups},
      map, units);
}

void fill_common(const Call& c, uint32_t kernel, const Device& device, BackwardParams* x) {
  x->sequences = sequences_of(c.p);
  x->group = int32_t(c.p.group());
  x->window_left = c.p.window_left;
  x->window_right = c.p.window_right;
  x->head_dim = int32_t(c.p.head_dim_qk);
  x->ds = c.ds;
  x->ds_tiles_per_head = c.plan.tiles_per_head;
  x->key_tile_offset = c.scratch.offset;
  x->report = device.device_report;
  x->kernel = kFirstBackwardKernel + kernel;
}

Status make_dkdv_params(const Call& c, const Device& device, DkdvParams* x) {
  const Problem& p = c.p;
  const auto groups = uint32_t(c.i.columns / 64);
  fill_common(c, uint32_t(2 * (&c.i - kInstances)), device, x);
  const Rows* own[2] = {&p.k, &p.v};
  const Rows* streamed[2] = {&p.q, &p.dout};
  const char* names[2] = {"q", "dout"};
  for (int cta = 0; cta < 2; ++cta) {
    FFPA_RETURN_IF_ERROR(make_map(p, {cta == 0 ? "k" : "v", *own[cta], false, 64, 2}, &x->own[cta],
                                  &x->own_units[cta]));
    FFPA_RETURN_IF_ERROR(make_map(p, {names[cta], *streamed[cta], true, 64, 2}, &x->scores[cta],
                                  &x->score_units[cta]));
    FFPA_RETURN_IF_ERROR(make_map(p, {names[1 - cta], *streamed[1 - cta], true, 32, groups},
                                  &x->values[cta], &x->value_units[cta]));
  }
  x->list = c.scratch.key_list;
  x->list_count = c.scratch.counts;
  x->scale = p.softmax_scale;
  x->scale_log2 = p.softmax_scale * kLog2e;
  if (p.softcap > 0) {
    x->cap_scale = p.softmax_scale / p.softcap;
    x->scale_log2 = p.softcap * kLog2e;
  }
  x->lse2 = c.scratch.lse2;
  x->delta = c.scratch.delta_padded;
  x->statistics_stride = c.scratch.statistics_tiles * 64;
  x->store_ds = p.dq.defined();
  x->alone = p.dlse.defined() ? std::numeric_limits<float>::infinity() : 1 - 0x1p-15f;
  x->gradient[0] = gradient_rows(p.dv);
  x->gradient[1] = gradient_rows(p.dk);
  x->partial = c.partial;
  x->key_tiles = int32_t(c.scratch.key_tiles);
  return {};
}

Status make_dq_params(const Call& c, const Device& device, DqParams* x) {
  fill_common(c, uint32_t(2 * (&c.i - kInstances) + 1), device, x);
  FFPA_RETURN_IF_ERROR(
      make_map(c.p, {"k", c.p.k, false, 64, uint32_t(c.i.columns / 64)}, &x->k, &x->k_units));
  x->list = c.scratch.query_list;
  x->list_count = c.scratch.counts + 1;
  x->scale = c.p.softmax_scale;
  x->dq = gradient_rows(c.p.dq);
  return {};
}

Status prepare(const Call& c, cudaStream_t stream) {
  const Problem& p = c.p;
  const Scratch& s = c.scratch;
  FFPA_RETURN_IF_ERROR(to_status(sm80::launch_delta(p, s.delta, stream)));
  if (p.dsink) FFPA_RETURN_IF_ERROR(to_status(sm80::launch_sink_gradient(p, s.delta, stream)));
  return to_status(prepare_statistics({.sequences = sequences_of(p),
                                       .heads_q = int32_t(p.heads_q),
                                       .lse = p.lse.data,
                                       .lse_batch = p.lse.batch_stride,
                                       .lse_head = p.lse.head_stride,
                                       .lse_row = p.lse.row_stride,
                                       .delta = s.delta,
                                       .delta_head = p.total_q,
                                       .lse2 = s.lse2,
                                       .delta_padded = s.delta_padded,
                                       .stride = s.statistics_tiles * 64},
                                      stream));
}

Status prepare_lists(const Call& c, const Chunk& chunk, cudaStream_t stream) {
  const Problem& p = c.p;
  const Scratch& s = c.scratch;
  if (p.dq.defined()) {
    FFPA_RETURN_IF_ERROR(
        to_status(prepare_work_list({.sequences = sequences_of(p),
                                     .window_left = p.window_left,
                                     .window_right = p.window_right,
                                     .block_m = 128,
                                     .block_n = 64,
                                     .list = s.query_list,
                                     .count = s.counts + 1,
                                     .capacity = int32_t(s.dq_tiles),
                                     .class_shift = class_shift(p.total_k / 64 + 1)},
                                    stream)));
  }
  return to_status(prepare_key_tiles({.sequences = sequences_of(p),
                                      .window_left = p.window_left,
                                      .window_right = p.window_right,
                                      .chunk = chunk,
                                      .key_tiles = int32_t(s.key_tiles),
                                      .class_shift = class_shift(p.total_q / 64 + 1),
                                      .offset = s.offset,
                                      .list = s.key_list,
                                      .count = s.counts,
                                      .most_tiles = c.plan.tiles_per_head,
                                      .dq_count = s.counts + 1},
                                     stream));
}

Status run_chunk(const Call& c, const Chunk& chunk, DkdvParams* dkdv, DqParams* dq,
                 cudaStream_t stream) {
  dkdv->chunk = dq->chunk = chunk;
  FFPA_RETURN_IF_ERROR(prepare_lists(c, chunk, stream));
  const int64_t pairs = (key_tiles_of(c.p) + (c.p.packed ? 1 : 0)) * chunk.kv_heads;
  const int64_t tiles = c.scratch.dq_tiles * chunk.kv_heads * c.p.group();
  if (pairs >= int64_t{1} << 30 || tiles >= int64_t{1} << 30) {
    return Status::unsupported("q", "fewer than 2^30 tiles over all heads",
                               std::to_string(std::max(pairs, tiles)));
  }
  FFPA_RETURN_IF_ERROR(to_status(c.i.dkdv(*dkdv, int(pairs), stream)));
  if (!c.p.dq.defined()) return {};
  return to_status(c.i.dq(*dq, tiles, stream));
}

Status run_chunks(const Call& c, DkdvParams* dkdv, DqParams* dq, cudaStream_t stream) {
  const int64_t blocks = std::max<int64_t>(ceil64(c.p.seqlen_q), 1);
  for (int64_t head = 0; head < c.p.heads_kv; head += c.plan.kv_heads) {
    for (int64_t block = 0; block < blocks; block += c.plan.blocks) {
      const Chunk chunk{.first_kv_head = int32_t(head),
                        .kv_heads = int32_t(std::min(c.plan.kv_heads, c.p.heads_kv - head)),
                        .block_begin = int32_t(block),
                        .block_end = int32_t(block + c.plan.blocks < blocks ? block + c.plan.blocks
                                                                            : int64_t{1} << 24),
                        .first = block == 0,
                        .last = block + c.plan.blocks >= blocks};
      FFPA_RETURN_IF_ERROR(run_chunk(c, chunk, dkdv, dq, stream));
    }
  }
  return {};
}

// Tensor maps need rows 16 bytes apart, and something to copy. The plan is made without dout.
bool better_left_to_sm80(const Problem& p) {
  return !aligned(p.dout) || p.dout.row_stride == 0 || p.total_q == 0 || p.total_k == 0;
}

}  // namespace

KernelName backward_kernel_name(uint32_t kernel) {
  if (kernel >= 2 * std::size(kInstances)) return {};
  const Instance& i = kInstances[kernel / 2];
  const bool dq = kernel % 2;
  return {std::string(dq ? "dq" : "dkdv") + ", head_dim " + std::to_string(i.head_dim) + ", " +
              dtype_name(i.dtype),
          i.barrier[dq], i.barriers[dq],
          dq ? "consumer 0\0consumer 1\0producer\0"
             : "consumer 0\0consumer 1\0producer 0\0producer 1\0"};
}

std::string refuse_backward(const Problem& p) {
  if (make_plan(p).possible) return "";
  return p.workspace_limit < 0 ? "dS of 128 queries in as many bytes as dq, dk and dv have"
                               : "a workspace_limit of " + std::to_string(p.workspace_limit);
}

size_t backward_workspace_bytes(const Problem& p) {
  return std::max(size_t(Call(p, nullptr).bytes), sm80::backward_workspace_bytes(p));
}

Status backward(const Problem& p, Workspace workspace, void* to) {
  if (better_left_to_sm80(p)) return sm80::backward(p, workspace, to);
  const auto stream = static_cast<cudaStream_t>(to);
  const DeviceGuard guard(p.device_index);
  FFPA_RETURN_IF_ERROR(guard.status());
  const Device* device = nullptr;
  FFPA_RETURN_IF_ERROR(current_device(p.device_index, &device));
  FFPA_RETURN_IF_ERROR(check_waits(*device));

  const Call call(p, workspace.data);
  DkdvParams dkdv{};
  DqParams dq{};
  FFPA_RETURN_IF_ERROR(make_dkdv_params(call, *device, &dkdv));
  FFPA_RETURN_IF_ERROR(make_dq_params(call, *device, &dq));
  FFPA_RETURN_IF_ERROR(prepare(call, stream));
  return run_chunks(call, &dkdv, &dq, stream);
}

std::string describe_backward(const Problem& p) {
  const Instance& i = instance_of(p);
  const Plan plan = make_plan(p);
  std::string text =
      "wgmma, pairs of CTAs for 64 keys, dS stored, head_dim " + std::to_string(i.head_dim);
  if (plan.kv_heads < p.heads_kv)
    text += ", " + std::to_string(plan.kv_heads) + " KV heads at a time";
  if (plan.partial_floats > 0)
    text += ", " + std::to_string(64 * plan.blocks) + " queries at a time";
  return text;
}

}  // namespace ffpa::sm90
