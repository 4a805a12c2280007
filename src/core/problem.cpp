// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "core/problem.h"

namespace ffpa {

Sequence Problem::sequence(int64_t b) const {
  Sequence s;
  if (packed) {
    s.q_begin = cu_seqlens_q[b];
    s.k_begin = cu_seqlens_k[b];
    s.rows_q = cu_seqlens_q[b + 1] - cu_seqlens_q[b];
    s.rows_k = cu_seqlens_k[b + 1] - cu_seqlens_k[b];
  } else {
    s.rows_q = static_cast<int32_t>(seqlen_q);
    s.rows_k = static_cast<int32_t>(seqlen_k);
  }
  s.len_q = seqused_q ? seqused_q[b] : s.rows_q;
  s.len_k = seqused_k ? seqused_k[b] : s.rows_k;
  return s;
}

}  // namespace ffpa
