// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "sm80/make_params.h"

#include <algorithm>
#include <cmath>

namespace ffpa::sm80 {
namespace {

constexpr int kReservedSharedBytes = 1024;  // by the system, for each block

MaskKind mask_kind(const MaskView& m) {
  if (!m.defined()) return MaskKind::kNone;
  switch (m.dtype) {
    case DType::kBool:
      return MaskKind::kBool;
    case DType::kFloat32:
      return MaskKind::kFloat32;
    case DType::kFloat16:
      return MaskKind::kFloat16;
    default:
      return MaskKind::kBFloat16;
  }
}

void set_operands(const Problem& p, Op op, Params* o) {
  const int64_t d = p.head_dim_qk, dv = p.head_dim_v;
  const Operand q = make_operand(p.q, d), k = make_operand(p.k, d), v = make_operand(p.v, dv),
                dout = make_operand(p.dout, dv);
  switch (op) {
    case Op::kForward:
      o->own1 = q, o->streamed1 = k, o->values = v, o->result = make_operand(p.out, dv);
      break;
    case Op::kQueryGradient:
      o->own1 = q, o->own2 = dout, o->streamed1 = k, o->streamed2 = v, o->values = k;
      o->result = make_operand(p.dq, d);
      break;
    case Op::kKeyGradient:
      o->own1 = k, o->own2 = v, o->streamed1 = q, o->streamed2 = dout, o->values = q;
      o->result = make_operand(p.dk, d);
      break;
    case Op::kValueGradient:
      o->own1 = k, o->streamed1 = q, o->values = dout, o->result = make_operand(p.dv, dv);
      break;
  }
}

// Parts of the keys, so that a forward of few tiles fills the device too: as many blocks as two
// waves of 132 SMs need, of at least two blocks of keys each.
int32_t splits(const Problem& p, const Operation& o) {
  constexpr int64_t kBlocks = 264;
  if (o.blocks == 0 || o.blocks > kBlocks / 2) return 1;
  const int64_t key_blocks = p.seqlen_k / kTileShapes[o.shape].block;
  const int64_t most = std::min<int64_t>(key_blocks / 2, kMaxSplits);
  const auto count =
      static_cast<int32_t>(std::clamp<int64_t>(kBlocks / o.blocks, 1, std::max<int64_t>(most, 1)));
  const int64_t bytes = partial_floats(p, count) * 4;
  return p.workspace_limit >= 0 && bytes > p.workspace_limit ? 1 : count;
}

}  // namespace

int64_t partial_floats(const Problem& p, int splits) {
  return splits > 1 ? splits * p.heads_q * p.total_q * (p.head_dim_v + 1) : 0;
}

Operand make_operand(const Rows& r, int64_t width) {
  const uint64_t bits = reinterpret_cast<uintptr_t>(r.data) / 2 |
                        static_cast<uint64_t>(r.batch_stride | r.head_stride | r.row_stride);
  return {r.data,       r.batch_stride, r.head_stride, r.row_stride, static_cast<int32_t>(width),
          bits % 8 == 0};
}

Statistics make_statistics(const RowStatistics& s) {
  return {s.defined() ? s.data : nullptr, s.batch_stride, s.head_stride, s.row_stride};
}

Sequences make_sequences(const Problem& p) {
  Sequences s{};
  s.packed = p.packed;
  s.batch = static_cast<int32_t>(p.batch);
  s.seqlen_q = static_cast<int32_t>(p.seqlen_q);
  s.seqlen_k = static_cast<int32_t>(p.seqlen_k);
  s.cu_q = p.cu_seqlens_q;
  s.cu_k = p.cu_seqlens_k;
  s.used_q = p.seqused_q;
  s.used_k = p.seqused_k;
  return s;
}

Extras make_extras(const Problem& p) {
  Extras x{};
  x.softcap = p.softcap;
  x.alibi_slopes = p.alibi_slopes;
  x.alibi_batch_stride = p.alibi_batch_stride;
  x.alibi_head_stride = p.alibi_head_stride;
  x.mask = p.mask.data;
  x.mask_kind = mask_kind(p.mask);
  x.mask_batch_stride = p.mask.batch_stride;
  x.mask_head_stride = p.mask.head_stride;
  x.mask_row_stride = p.mask.row_stride;
  x.mask_column_stride = p.mask.column_stride;
  x.dropout = p.dropout.p != 0;
  // (u + 1) > p 2^32 exactly where u >= floor(p 2^32).
  x.drop_below = static_cast<uint32_t>(std::floor(p.dropout.p * 0x1p32));
  x.keep_scale = static_cast<float>(1 / (1 - p.dropout.p));
  x.seed = p.dropout.seed;
  x.offset = p.dropout.offset;
  return x;
}

bool is_general(const Params& p) {
  const Extras& x = p.extras;
  if (x.softcap != 0 || x.alibi_slopes || x.mask_kind != MaskKind::kNone || x.dropout) return true;
  for (const Operand* o : {&p.own1, &p.own2, &p.streamed1, &p.streamed2, &p.values}) {
    if (!o->aligned) return true;
  }
  return p.heads_per_tile > 1 || p.partials.splits > 1;
}

Operation make_operation(const Problem& p, Op op) {
  Operation o{};
  o.op = op;
  Params& x = o.params;
  set_operands(p, op, &x);
  x.sequences = make_sequences(p);
  x.window_left = p.window_left;
  x.window_right = p.window_right;
  x.heads_q = static_cast<int32_t>(p.heads_q);
  x.heads_kv = static_cast<int32_t>(p.heads_kv);
  x.group = static_cast<int32_t>(p.group());
  x.softmax_scale = p.softmax_scale;
  x.lse = make_statistics(p.lse);
  x.total_q = p.total_q;
  x.has_dlse = p.dlse.defined();
  x.extras = make_extras(p);
  // Kept P are 1 / (1 - p) times as large; dS is the gradient of scaled products.
  x.result_scale =
      op == Op::kQueryGradient || op == Op::kKeyGradient ? p.softmax_scale : x.extras.keep_scale;
  if (op == Op::kForward) {
    x.sink = p.sink;
    x.sink_stride = p.sink_stride;
  }

  const bool by_query = owns_queries(op);
  o.shape = tile_shape_of(x.values.width);
  if (by_query && x.values.width > 256 &&
      p.seqlen_q * p.group() <= kTileShapes[kTileShapeCount - 1].rows) {
    o.shape = kTileShapeCount - 1;
  }
  const int64_t rows = kTileShapes[o.shape].rows;
  // Few queries: the heads of a group fill one tile, and read its keys once.
  x.heads_per_tile = by_query && p.seqlen_q <= rows / 2 ? x.group : 1;
  const int64_t heads = (by_query ? p.heads_q : p.heads_kv) / x.heads_per_tile;
  if (p.packed) {
    const int64_t all = (by_query ? p.total_q : p.total_k) * x.heads_per_tile;
    x.tiles_bound = all / rows + p.batch;
    o.blocks = x.tiles_bound * heads;
  } else {
    const int64_t all = (by_query ? p.seqlen_q : p.seqlen_k) * x.heads_per_tile;
    x.tiles_bound = (all + rows - 1) / rows;
    o.blocks = x.tiles_bound * heads * p.batch;
  }
  x.partials.splits = op == Op::kForward ? splits(p, o) : 1;
  o.blocks *= x.partials.splits;
  return o;
}

Status plan_operation(int block_limit, int sm_limit, Operation* operation) {
  const TileShape& t = kTileShapes[operation->shape];
  const Params& x = operation->params;
  const Widths w{x.own1.width, x.own2.width, x.values.width};
  const int shared = sm_limit / t.blocks_per_sm - kReservedSharedBytes;
  MemoryPlan m = plan_memory(t, operation->op, w, std::min(shared, block_limit));
  if (m.bytes < 0) m = plan_memory(t, operation->op, w, block_limit);
  if (m.bytes < 0) {
    return Status::unsupported("q", "a device with 99 KB of shared memory for a block",
                               std::to_string(block_limit) + " bytes");
  }
  operation->params.memory = m;
  constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;
  if (operation->blocks > kMostBlocks) {
    return Status::unsupported("q", "at most 2^31 - 1 tiles over all heads and sequences",
                               std::to_string(operation->blocks));
  }
  return {};
}

}  // namespace ffpa::sm80
