// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "support/case.h"

#include <sstream>
#include <utility>

namespace ffpa::test {
namespace {

std::string list(const std::vector<int32_t>& values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) text += (i ? "," : "") + std::to_string(values[i]);
  return text + "]";
}

const char* layout_name(Layout layout) {
  constexpr const char* kNames[] = {"contiguous", "transposed", "fused",
                                    "padded",     "offset",     "expanded"};
  return kNames[static_cast<int>(layout)];
}

}  // namespace

Case packed_case(DType dtype, std::vector<int32_t> lengths_q, std::vector<int32_t> lengths_k,
                 int64_t heads_q, int64_t heads_kv, int64_t head_dim, bool causal) {
  Case c;
  c.dtype = dtype;
  c.packed = true;
  c.lengths_q = std::move(lengths_q);
  c.lengths_k = std::move(lengths_k);
  c.heads_q = heads_q;
  c.heads_kv = heads_kv;
  c.head_dim = head_dim;
  c.options.causal = causal;
  return c;
}

Case dense_case(DType dtype, int64_t batch, int32_t nq, int32_t nk, int64_t heads_q,
                int64_t heads_kv, int64_t head_dim, bool causal) {
  Case c = packed_case(dtype, std::vector<int32_t>(batch, nq), std::vector<int32_t>(batch, nk),
                       heads_q, heads_kv, head_dim, causal);
  c.packed = false;
  return c;
}

std::string describe(const Case& c) {
  std::ostringstream text;
  text << "seed " << c.seed << ": " << dtype_name(c.dtype) << (c.packed ? " packed" : " dense")
       << " q" << list(c.lengths_q) << " k" << list(c.k_lengths()) << " heads " << c.heads_q << "/"
       << c.heads_kv << " head_dim " << c.head_dim << "/" << c.v_dim() << " "
       << layout_name(c.layout);
  if (c.options.softmax_scale) text << " scale " << *c.options.softmax_scale;
  if (c.options.causal) text << " causal";
  if (c.options.window_left >= 0 || c.options.window_right >= 0) {
    text << " window (" << c.options.window_left << "," << c.options.window_right << ")";
  }
  if (c.options.softcap != 0) text << " softcap " << c.options.softcap;
  if (c.sink) text << " sink";
  if (c.alibi_rank) text << " alibi rank " << c.alibi_rank;
  if (c.mask != Mask::kNone) {
    text << (c.mask == Mask::kBool      ? " bool"
             : c.mask == Mask::kFloat32 ? " float32"
                                        : " own-dtype")
         << " mask rank " << c.mask_rank << " broadcast {";
    for (int dim : c.mask_broadcast) text << dim;
    text << "}";
  }
  if (c.options.dropout_p > 0) text << " dropout " << c.options.dropout_p;
  if (!c.used_q.empty()) text << " used_q" << list(c.used_q);
  if (!c.used_k.empty()) text << " used_k" << list(c.used_k);
  if (c.dlse) text << " dlse";
  if (c.v_is_k) text << " v=k";
  if (c.options.num_threads) text << " threads " << c.options.num_threads;
  return text.str();
}

}  // namespace ffpa::test
