// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "cpu/row_kernels.h"

namespace ffpa::cpu {

ScoreRules score_rules(const Problem& p, int64_t batch, int64_t head, const Sequence& s) {
  ScoreRules rules;
  rules.scale = p.softmax_scale;
  rules.softcap = p.softcap;
  rules.visible = p.visibility(s);
  if (p.alibi_slopes) {
    rules.alibi = true;
    rules.alibi_slope = p.alibi_slopes[batch * p.alibi_batch_stride + head * p.alibi_head_stride];
  }
  if (p.mask.defined()) {
    rules.mask = p.mask;
    rules.mask.data = static_cast<char*>(p.mask.data) +
                      p.mask.offset(batch, head, 0, 0) * dtype_bytes(p.mask.dtype);
  }
  if (p.dropout.p > 0) {
    rules.dropout = true;
    // (u + 1) / 2^32 > p, in exact arithmetic.
    rules.dropout_p = p.dropout.p;
    rules.keep_scale = static_cast<float>(1 / (1 - p.dropout.p));
    rules.seed = p.dropout.seed;
    const uint64_t row = static_cast<uint64_t>(batch * p.heads_q + head) * p.seqlen_q;
    rules.first_element = p.dropout.offset + row * p.seqlen_k;
    rules.elements_per_query = p.seqlen_k;
  }
  return rules;
}

}  // namespace ffpa::cpu
