// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "core/check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "core/tensor_checks.h"

namespace ffpa {
namespace {

constexpr auto kFloats = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", x);
  return text;
}

// q, k, v and what has their shape: rank, layout, unit last stride.
Status check_rows(const char* name, const Tensor& t, bool packed, const Tensor& q) {
  const int rank = packed ? 3 : 4;
  if (t.rank != rank) {
    return Status::invalid_value(name,
                                 packed ? "3 dimensions [tokens, heads, head_dim]"
                                        : "4 dimensions [batch, heads, seqlen, head_dim]",
                                 t.rank == 0 ? "none" : std::to_string(t.rank) + " dimensions");
  }
  FFPA_RETURN_IF_ERROR(check_device(name, t, q));
  FFPA_RETURN_IF_ERROR(check_layout(name, t));
  return check_unit_last_stride(name, t);
}

Rows to_rows(const Tensor& t, bool packed) {
  Rows r;
  r.given = true;
  r.data = static_cast<char*>(t.data);
  if (packed) {
    r.row_stride = canonical_stride(t, 0);
    r.head_stride = canonical_stride(t, 1);
  } else {
    r.batch_stride = canonical_stride(t, 0);
    r.head_stride = canonical_stride(t, 1);
    r.row_stride = canonical_stride(t, 2);
  }
  return r;
}

Status check_same_dtype(const char* name, const Tensor& t, const Tensor& q) {
  if (t.dtype == q.dtype) return {};
  return Status::invalid_type(name, std::string("dtype ") + dtype_name(q.dtype) + ", as q",
                              dtype_name(t.dtype));
}

Status check_head_dim(const char* name, int64_t head_dim) {
  if (head_dim >= 8 && head_dim <= 1024 && head_dim % 8 == 0) return {};
  return Status::invalid_value(name, "a head_dim that is a multiple of 8 from 8 to 1024",
                               std::to_string(head_dim));
}

Status check_heads(const Tensor& q, const Tensor& k, const Tensor& v) {
  const int64_t hq = q.shape[1], hk = k.shape[1], hv = v.shape[1];
  if (hq < 1) return Status::invalid_value("q", "at least one head", std::to_string(hq));
  if (hk < 1) return Status::invalid_value("k", "at least one head", std::to_string(hk));
  if (hq % hk != 0) {
    return Status::invalid_value(
        "k", "a number of heads that divides the " + std::to_string(hq) + " heads of q",
        std::to_string(hk));
  }
  if (hv != hk) {
    return Status::invalid_value("v", "as many heads as k, " + std::to_string(hk),
                                 std::to_string(hv));
  }
  return {};
}

// Sizes of results and workspaces then stay inside int64, also where strides are 0.
Status check_size(const char* name, const Tensor& t) {
  constexpr double kMostElements = 0x1p48;
  double elements = 1;
  for (int i = 0; i < t.rank; ++i)
    elements *= static_cast<double>(std::max<int64_t>(t.shape[i], 1));
  if (elements < kMostElements) return {};
  return Status::invalid_value(name, "fewer than 2^48 elements in all", shape_text(shape_of(t)));
}

Status check_qkv(const AttentionInputs& in, bool packed, Problem* p) {
  const Tensor &q = in.q, &k = in.k, &v = in.v;
  if (q.device == DeviceType::kOther) {
    return Status::invalid_value("q", "a CPU or CUDA tensor", "one on another device");
  }
  FFPA_RETURN_IF_ERROR(check_rows("q", q, packed, q));
  FFPA_RETURN_IF_ERROR(check_dtype("q", q, kFloats));
  FFPA_RETURN_IF_ERROR(check_rows("k", k, packed, q));
  FFPA_RETURN_IF_ERROR(check_same_dtype("k", k, q));
  FFPA_RETURN_IF_ERROR(check_rows("v", v, packed, q));
  FFPA_RETURN_IF_ERROR(check_same_dtype("v", v, q));
  FFPA_RETURN_IF_ERROR(check_heads(q, k, v));
  FFPA_RETURN_IF_ERROR(check_size("q", q));
  FFPA_RETURN_IF_ERROR(check_size("k", k));
  FFPA_RETURN_IF_ERROR(check_size("v", v));

  const int last = q.rank - 1, seq = packed ? 0 : 2;
  FFPA_RETURN_IF_ERROR(check_head_dim("q", q.shape[last]));
  FFPA_RETURN_IF_ERROR(check_head_dim("v", v.shape[last]));
  if (k.shape[last] != q.shape[last]) {
    return Status::invalid_value("k", "q's head_dim " + std::to_string(q.shape[last]),
                                 std::to_string(k.shape[last]));
  }
  if (v.shape[seq] != k.shape[seq]) {
    return Status::invalid_value(
        "v", std::string("k's ") + (packed ? "tokens " : "seqlen ") + std::to_string(k.shape[seq]),
        std::to_string(v.shape[seq]));
  }
  p->device = q.device;
  p->device_index = q.device_index;
  p->dtype = q.dtype;
  p->packed = packed;
  p->heads_q = q.shape[1];
  p->heads_kv = k.shape[1];
  p->head_dim_qk = q.shape[last];
  p->head_dim_v = v.shape[last];
  p->q = to_rows(q, packed);
  p->k = to_rows(k, packed);
  p->v = to_rows(v, packed);
  return {};
}

Status check_seqlen(const char* name, int64_t n) {
  if (n >= 0 && n <= kMaxSeqlen) return {};
  return Status::invalid_value(name, "a sequence length from 0 to " + std::to_string(kMaxSeqlen),
                               std::to_string(n));
}

Status check_dense(const AttentionInputs& in, Problem* p) {
  for (auto [name, t] : {std::pair{"k", &in.k}, std::pair{"v", &in.v}}) {
    if (t->shape[0] != in.q.shape[0]) {
      return Status::invalid_value(name, "q's batch " + std::to_string(in.q.shape[0]),
                                   std::to_string(t->shape[0]));
    }
  }
  if (in.max_seqlen_q != 0 || in.max_seqlen_k != 0) {
    return Status::invalid_value(
        in.max_seqlen_q ? "max_seqlen_q" : "max_seqlen_k", "0 for dense input",
        std::to_string(in.max_seqlen_q ? in.max_seqlen_q : in.max_seqlen_k));
  }
  p->batch = in.q.shape[0];
  p->seqlen_q = in.q.shape[2];
  p->seqlen_k = in.k.shape[2];
  FFPA_RETURN_IF_ERROR(check_seqlen("q", p->seqlen_q));
  FFPA_RETURN_IF_ERROR(check_seqlen("k", p->seqlen_k));
  p->total_q = p->batch * p->seqlen_q;
  p->total_k = p->batch * p->seqlen_k;
  return {};
}

// int32 [length], contiguous.
Status check_int_vector(const char* name, const Tensor& t, const Tensor& q) {
  FFPA_RETURN_IF_ERROR(check_dtype(name, t, {DType::kInt32}));
  if (t.rank != 1) {
    return Status::invalid_value(name, "1 dimension", shape_text(shape_of(t)));
  }
  FFPA_RETURN_IF_ERROR(check_device(name, t, q));
  FFPA_RETURN_IF_ERROR(check_layout(name, t));
  return check_unit_last_stride(name, t);
}

// The values, on the CPU: first 0, non-decreasing, last `total`, no sequence over `max_seqlen`.
Status check_offsets(const char* name, const Tensor& t, int64_t total, int64_t max_seqlen) {
  const auto* at = static_cast<const int32_t*>(t.data);
  if (at[0] != 0) return Status::invalid_value(name, "a first value of 0", std::to_string(at[0]));
  for (int64_t i = 1; i < t.shape[0]; ++i) {
    const int64_t length = int64_t{at[i]} - at[i - 1];
    const std::string where = " at index " + std::to_string(i);
    if (length < 0) {
      return Status::invalid_value(
          name, "non-decreasing values",
          std::to_string(at[i]) + " after " + std::to_string(at[i - 1]) + where);
    }
    if (length > max_seqlen) {
      return Status::invalid_value(
          name, "no sequence longer than max_seqlen = " + std::to_string(max_seqlen),
          std::to_string(length) + where);
    }
  }
  const int32_t end = at[t.shape[0] - 1];
  if (end != total) {
    return Status::invalid_value(name, "a last value of " + std::to_string(total) + ", the tokens",
                                 std::to_string(end));
  }
  return {};
}

Status check_packed(const AttentionInputs& in, bool read_data, Problem* p) {
  const Tensor &cu_q = in.cu_seqlens_q, &cu_k = in.cu_seqlens_k;
  FFPA_RETURN_IF_ERROR(check_int_vector("cu_seqlens_q", cu_q, in.q));
  FFPA_RETURN_IF_ERROR(check_int_vector("cu_seqlens_k", cu_k, in.q));
  if (cu_q.shape[0] < 1) {
    return Status::invalid_value("cu_seqlens_q", "at least 1 value (batch + 1)", "0");
  }
  if (cu_k.shape[0] != cu_q.shape[0]) {
    return Status::invalid_value(
        "cu_seqlens_k",
        "as many values as cu_seqlens_q, " + std::to_string(cu_q.shape[0]) + " = batch + 1",
        std::to_string(cu_k.shape[0]));
  }
  FFPA_RETURN_IF_ERROR(check_seqlen("max_seqlen_q", in.max_seqlen_q));
  FFPA_RETURN_IF_ERROR(check_seqlen("max_seqlen_k", in.max_seqlen_k));
  for (auto [name, t] : {std::pair{"q", &in.q}, std::pair{"k", &in.k}}) {
    if (t->shape[0] > INT32_MAX) {
      return Status::invalid_value(name, "at most 2^31 - 1 tokens", std::to_string(t->shape[0]));
    }
  }
  p->batch = cu_q.shape[0] - 1;
  p->seqlen_q = in.max_seqlen_q;
  p->seqlen_k = in.max_seqlen_k;
  p->total_q = in.q.shape[0];
  p->total_k = in.k.shape[0];
  if (read_data) {
    FFPA_RETURN_IF_ERROR(check_data("cu_seqlens_q", cu_q));
    FFPA_RETURN_IF_ERROR(check_data("cu_seqlens_k", cu_k));
    if (in.q.device == DeviceType::kCpu) {
      FFPA_RETURN_IF_ERROR(check_offsets("cu_seqlens_q", cu_q, p->total_q, p->seqlen_q));
      FFPA_RETURN_IF_ERROR(check_offsets("cu_seqlens_k", cu_k, p->total_k, p->seqlen_k));
    }
  }
  p->cu_seqlens_q = static_cast<const int32_t*>(cu_q.data);
  p->cu_seqlens_k = static_cast<const int32_t*>(cu_k.data);
  return {};
}

// Runs after the lengths of the sequences are known.
Status check_seqused(const char* name, const Tensor& t, const Tensor& q, bool read_data,
                     const Problem& p, int32_t Sequence::* rows, const int32_t** to) {
  if (!t.defined()) return {};
  FFPA_RETURN_IF_ERROR(check_int_vector(name, t, q));
  FFPA_RETURN_IF_ERROR(check_shape(name, t, {p.batch}, "[batch]"));
  if (read_data) {
    FFPA_RETURN_IF_ERROR(check_data(name, t));
    const auto* used = static_cast<const int32_t*>(t.data);
    for (int64_t b = 0; q.device == DeviceType::kCpu && b < p.batch; ++b) {
      const int32_t length = p.sequence(b).*rows;
      if (used[b] < 0 || used[b] > length) {
        return Status::invalid_value(
            name, "a value from 0 to the sequence's length " + std::to_string(length),
            std::to_string(used[b]) + " at index " + std::to_string(b));
      }
    }
  }
  *to = static_cast<const int32_t*>(t.data);
  return {};
}

// Right-aligned broadcast against [batch, heads_q, seqlen_q, seqlen_k].
MaskView to_mask(const Tensor& t) {
  int64_t strides[4] = {0, 0, 0, 0};
  for (int i = 0; i < t.rank; ++i) strides[4 - t.rank + i] = canonical_stride(t, i);
  MaskView m;
  m.data = t.data;
  m.given = true;
  m.dtype = t.dtype;
  m.batch_stride = strides[0];
  m.head_stride = strides[1];
  m.row_stride = strides[2];
  m.column_stride = strides[3];
  return m;
}

Status check_mask(const Tensor& t, const Tensor& q, bool read_data, Problem* p) {
  if (!t.defined()) return {};
  FFPA_RETURN_IF_ERROR(check_device("mask", t, q));
  if (t.dtype != DType::kBool && t.dtype != DType::kFloat32 && t.dtype != q.dtype) {
    return Status::invalid_type(
        "mask", std::string("dtype bool, float32 or ") + dtype_name(q.dtype) + ", as q",
        dtype_name(t.dtype));
  }
  FFPA_RETURN_IF_ERROR(check_layout("mask", t));
  const Shape full = {p->batch, p->heads_q, p->seqlen_q, p->seqlen_k};
  for (int i = 0; i < t.rank; ++i) {
    if (t.shape[i] != 1 && t.shape[i] != full[4 - t.rank + i]) {
      return Status::invalid_value("mask",
                                   "a shape that broadcasts to " + shape_text(full) +
                                       " = [batch, heads_q, seqlen_q, seqlen_k]",
                                   shape_text(shape_of(t)));
    }
  }
  if (read_data) FFPA_RETURN_IF_ERROR(check_data("mask", t));
  p->mask = to_mask(t);
  return {};
}

Status check_alibi(const Tensor& t, const Tensor& q, bool read_data, Problem* p) {
  if (!t.defined()) return {};
  FFPA_RETURN_IF_ERROR(check_dtype("alibi_slopes", t, {DType::kFloat32}));
  FFPA_RETURN_IF_ERROR(check_device("alibi_slopes", t, q));
  FFPA_RETURN_IF_ERROR(check_layout("alibi_slopes", t));
  if (t.rank == 2) {
    FFPA_RETURN_IF_ERROR(
        check_shape("alibi_slopes", t, {p->batch, p->heads_q}, "[batch, heads_q]"));
    p->alibi_batch_stride = canonical_stride(t, 0);
  } else {
    FFPA_RETURN_IF_ERROR(check_shape("alibi_slopes", t, {p->heads_q}, "[heads_q]"));
  }
  if (read_data) FFPA_RETURN_IF_ERROR(check_data("alibi_slopes", t));
  p->alibi_head_stride = canonical_stride(t, t.rank - 1);
  p->alibi_slopes = static_cast<const float*>(t.data);
  return {};
}

// sink and its gradient: float32 [heads_q].
Status check_per_head(const char* name, const Tensor& t, const Tensor& q, bool read_data,
                      const Problem& p) {
  FFPA_RETURN_IF_ERROR(check_dtype(name, t, {DType::kFloat32}));
  FFPA_RETURN_IF_ERROR(check_device(name, t, q));
  FFPA_RETURN_IF_ERROR(check_layout(name, t));
  FFPA_RETURN_IF_ERROR(check_shape(name, t, {p.heads_q}, "[heads_q]"));
  return read_data ? check_data(name, t) : Status{};
}

Status check_window(const char* name, int64_t side, int32_t* to) {
  if (side < -1) {
    return Status::invalid_value(name, "-1 (all keys) or a number of keys from 0",
                                 std::to_string(side));
  }
  *to = side < 0 || side > kUnbounded ? kUnbounded : static_cast<int32_t>(side);
  return {};
}

Status check_backend(Backend backend, DeviceType device) {
  if (backend == Backend::kAuto || (backend == Backend::kCpu) == (device == DeviceType::kCpu)) {
    return {};
  }
  return Status::invalid_value("backend",
                               device == DeviceType::kCpu ? "auto or cpu for CPU tensors"
                                                          : "auto, sm80 or sm90 for CUDA tensors",
                               backend == Backend::kCpu    ? "cpu"
                               : backend == Backend::kSm80 ? "sm80"
                                                           : "sm90");
}

Status check_options(const AttentionOptions& o, Problem* p) {
  const double scale =
      o.softmax_scale.value_or(1.0 / std::sqrt(static_cast<double>(p->head_dim_qk)));
  p->softmax_scale = static_cast<float>(scale);
  p->softcap = static_cast<float>(o.softcap);
  if (!std::isfinite(p->softmax_scale)) {
    return Status::invalid_value("softmax_scale", "a finite float32", number(scale));
  }
  if (!std::isfinite(p->softcap) || o.softcap < 0 || (o.softcap > 0 && p->softcap == 0)) {
    return Status::invalid_value("softcap", "0 (off) or a positive, finite float32",
                                 number(o.softcap));
  }
  FFPA_RETURN_IF_ERROR(check_window("window_left", o.window_left, &p->window_left));
  FFPA_RETURN_IF_ERROR(check_window("window_right", o.window_right, &p->window_right));
  if (o.causal) p->window_right = 0;
  if (!(o.dropout_p >= 0 && o.dropout_p < 1)) {
    return Status::invalid_value("dropout_p", "a probability in [0, 1)", number(o.dropout_p));
  }
  p->dropout = {o.dropout_p, o.dropout_seed, o.dropout_offset};
  FFPA_RETURN_IF_ERROR(check_backend(o.backend, p->device));
  p->backend = o.backend;
  if (o.workspace_limit < -1) {
    return Status::invalid_value("workspace_limit", "-1 (the kernel's default) or bytes from 0",
                                 std::to_string(o.workspace_limit));
  }
  p->workspace_limit = o.workspace_limit;
  if (o.num_threads < 0) {
    return Status::invalid_value("num_threads", "0 (all) or a positive number",
                                 std::to_string(o.num_threads));
  }
  p->num_threads = o.num_threads;
  return {};
}

Status check_all_inputs(const AttentionInputs& in, const AttentionOptions& options, bool read_data,
                        Problem* p) {
  const bool packed = in.cu_seqlens_q.defined() || in.cu_seqlens_k.defined();
  if (packed && !(in.cu_seqlens_q.defined() && in.cu_seqlens_k.defined())) {
    return Status::invalid_value(in.cu_seqlens_q.defined() ? "cu_seqlens_k" : "cu_seqlens_q",
                                 "both cu_seqlens_q and cu_seqlens_k for packed input", "none");
  }
  FFPA_RETURN_IF_ERROR(check_qkv(in, packed, p));
  FFPA_RETURN_IF_ERROR(packed ? check_packed(in, read_data, p) : check_dense(in, p));
  if (read_data) {
    FFPA_RETURN_IF_ERROR(check_data("q", in.q));
    FFPA_RETURN_IF_ERROR(check_data("k", in.k));
    FFPA_RETURN_IF_ERROR(check_data("v", in.v));
  }
  FFPA_RETURN_IF_ERROR(check_seqused("seqused_q", in.seqused_q, in.q, read_data, *p,
                                     &Sequence::rows_q, &p->seqused_q));
  FFPA_RETURN_IF_ERROR(check_seqused("seqused_k", in.seqused_k, in.q, read_data, *p,
                                     &Sequence::rows_k, &p->seqused_k));
  FFPA_RETURN_IF_ERROR(check_mask(in.mask, in.q, read_data, p));
  FFPA_RETURN_IF_ERROR(check_alibi(in.alibi_slopes, in.q, read_data, p));
  if (in.sink.defined()) {
    FFPA_RETURN_IF_ERROR(check_per_head("sink", in.sink, in.q, read_data, *p));
    p->sink = static_cast<const float*>(in.sink.data);
    p->sink_stride = canonical_stride(in.sink, 0);
  }
  return check_options(options, p);
}

// out, dout: [.., heads_q, .., head_dim_v] of q's dtype.
Status check_output_rows(const char* name, const Tensor& t, const AttentionInputs& in,
                         const Problem& p, Rows* rows) {
  FFPA_RETURN_IF_ERROR(check_rows(name, t, p.packed, in.q));
  FFPA_RETURN_IF_ERROR(check_same_dtype(name, t, in.q));
  Shape shape = shape_of(in.q);
  shape.back() = p.head_dim_v;
  FFPA_RETURN_IF_ERROR(check_shape(name, t, shape, "q's, with the head_dim of v"));
  FFPA_RETURN_IF_ERROR(check_data(name, t));
  *rows = to_rows(t, p.packed);
  return {};
}

// lse, dlse: float32, [batch, heads_q, seqlen_q] or [heads_q, tokens_q], any strides.
Status check_statistics(const char* name, const Tensor& t, const AttentionInputs& in,
                        const Problem& p, RowStatistics* to) {
  if (!t.defined()) return Status::invalid_value(name, "a float32 tensor", "none");
  FFPA_RETURN_IF_ERROR(check_dtype(name, t, {DType::kFloat32}));
  FFPA_RETURN_IF_ERROR(check_device(name, t, in.q));
  FFPA_RETURN_IF_ERROR(check_layout(name, t));
  FFPA_RETURN_IF_ERROR(
      p.packed
          ? check_shape(name, t, {p.heads_q, p.total_q}, "[heads_q, tokens_q]")
          : check_shape(name, t, {p.batch, p.heads_q, p.seqlen_q}, "[batch, heads_q, seqlen_q]"));
  FFPA_RETURN_IF_ERROR(check_data(name, t));
  to->given = true;
  to->data = static_cast<float*>(t.data);
  to->batch_stride = p.packed ? 0 : canonical_stride(t, 0);
  to->head_stride = canonical_stride(t, t.rank - 2);
  to->row_stride = canonical_stride(t, t.rank - 1);
  return {};
}

struct Named {
  const char* name;
  const Tensor* tensor;
};

Tensor as_tensor(const Workspace& workspace, const Tensor& q) {
  if (!workspace.data || workspace.bytes == 0) return {};
  const auto bytes =
      static_cast<int64_t>(std::min<size_t>(workspace.bytes, std::numeric_limits<int64_t>::max()));
  Tensor t = Tensor::contiguous(workspace.data, DType::kBool, {bytes});
  t.device = q.device;
  t.device_index = q.device_index;
  return t;
}

// Outputs may share memory neither with each other nor with anything that is read.
Status check_overlaps(std::initializer_list<Named> outputs, std::initializer_list<Named> read) {
  for (auto out = outputs.begin(); out != outputs.end(); ++out) {
    if (!out->tensor->defined()) continue;
    FFPA_RETURN_IF_ERROR(check_writable(out->name, *out->tensor));
    const auto against = [&](const Named& other) -> Status {
      if (!other.tensor->defined() || !tensors_overlap(*out->tensor, *other.tensor)) return {};
      return Status::invalid_value(
          out->name, std::string("memory of its own, apart from ") + other.name, "an overlap");
    };
    for (auto other = outputs.begin(); other != out; ++other) {
      FFPA_RETURN_IF_ERROR(against(*other));
    }
    for (const Named& other : read) FFPA_RETURN_IF_ERROR(against(other));
  }
  return {};
}

Status check_gradient_rows(const char* name, const Tensor& t, const Tensor& input,
                           const char* input_name, const AttentionInputs& in, bool read_data,
                           const Problem& p, Rows* rows) {
  if (!t.defined()) return {};
  FFPA_RETURN_IF_ERROR(check_rows(name, t, p.packed, in.q));
  FFPA_RETURN_IF_ERROR(check_same_dtype(name, t, in.q));
  FFPA_RETURN_IF_ERROR(check_shape(name, t, shape_of(input), input_name));
  if (read_data) FFPA_RETURN_IF_ERROR(check_data(name, t));
  *rows = to_rows(t, p.packed);
  return {};
}

Status check_dsink(const AttentionInputs& in, const Tensor& t, bool read_data, Problem* p) {
  if (!t.defined()) return {};
  if (!in.sink.defined()) {
    return Status::invalid_value("dsink", "none, since sink is not given", "a tensor");
  }
  FFPA_RETURN_IF_ERROR(check_per_head("dsink", t, in.q, read_data, *p));
  p->dsink = static_cast<float*>(t.data);
  p->dsink_stride = canonical_stride(t, 0);
  return {};
}

Status check_dmask(const AttentionInputs& in, const Tensor& t, bool read_data, Problem* p) {
  if (!t.defined()) return {};
  if (!in.mask.defined() || in.mask.dtype == DType::kBool) {
    return Status::invalid_value("dmask", "none, since there is no additive mask", "a tensor");
  }
  FFPA_RETURN_IF_ERROR(check_device("dmask", t, in.q));
  if (t.dtype != DType::kFloat32 && t.dtype != in.mask.dtype) {
    return Status::invalid_type(
        "dmask", std::string("dtype float32 or ") + dtype_name(in.mask.dtype) + ", as mask",
        dtype_name(t.dtype));
  }
  FFPA_RETURN_IF_ERROR(check_layout("dmask", t));
  FFPA_RETURN_IF_ERROR(check_shape("dmask", t, shape_of(in.mask), "mask's"));
  if (read_data) FFPA_RETURN_IF_ERROR(check_data("dmask", t));
  p->dmask = to_mask(t);
  return {};
}

Status check_gradients(const AttentionInputs& in, const BackwardOutputs& g, bool read_data,
                       Problem* p) {
  FFPA_RETURN_IF_ERROR(
      check_gradient_rows("dq", g.dq, in.q, "q's shape", in, read_data, *p, &p->dq));
  FFPA_RETURN_IF_ERROR(
      check_gradient_rows("dk", g.dk, in.k, "k's shape", in, read_data, *p, &p->dk));
  FFPA_RETURN_IF_ERROR(
      check_gradient_rows("dv", g.dv, in.v, "v's shape", in, read_data, *p, &p->dv));
  FFPA_RETURN_IF_ERROR(check_dsink(in, g.dsink, read_data, p));
  return check_dmask(in, g.dmask, read_data, p);
}

}  // namespace

Status check_inputs(const AttentionInputs& inputs, const AttentionOptions& options, Problem* p) {
  return check_all_inputs(inputs, options, false, p);
}

Status check_backward_plan(const AttentionInputs& inputs, const AttentionOptions& options,
                           const BackwardOutputs& gradients, Problem* p) {
  FFPA_RETURN_IF_ERROR(check_all_inputs(inputs, options, false, p));
  return check_gradients(inputs, gradients, false, p);
}

Status check_forward(const AttentionInputs& in, const AttentionOptions& options,
                     const ForwardOutputs& o, Workspace workspace, Problem* p) {
  FFPA_RETURN_IF_ERROR(check_all_inputs(in, options, true, p));
  FFPA_RETURN_IF_ERROR(check_output_rows("out", o.out, in, *p, &p->out));
  if (o.lse.defined()) FFPA_RETURN_IF_ERROR(check_statistics("lse", o.lse, in, *p, &p->lse));
  const Tensor scratch = as_tensor(workspace, in.q);
  return check_overlaps({{"out", &o.out}, {"lse", &o.lse}, {"workspace", &scratch}},
                        {{"q", &in.q},
                         {"k", &in.k},
                         {"v", &in.v},
                         {"cu_seqlens_q", &in.cu_seqlens_q},
                         {"cu_seqlens_k", &in.cu_seqlens_k},
                         {"seqused_q", &in.seqused_q},
                         {"seqused_k", &in.seqused_k},
                         {"mask", &in.mask},
                         {"alibi_slopes", &in.alibi_slopes},
                         {"sink", &in.sink}});
}

Status check_backward(const AttentionInputs& in, const AttentionOptions& options,
                      const BackwardInputs& saved, const BackwardOutputs& g, Workspace workspace,
                      Problem* p) {
  FFPA_RETURN_IF_ERROR(check_all_inputs(in, options, true, p));
  FFPA_RETURN_IF_ERROR(check_output_rows("out", saved.out, in, *p, &p->out));
  FFPA_RETURN_IF_ERROR(check_statistics("lse", saved.lse, in, *p, &p->lse));
  FFPA_RETURN_IF_ERROR(check_output_rows("dout", saved.dout, in, *p, &p->dout));
  if (saved.dlse.defined()) {
    FFPA_RETURN_IF_ERROR(check_statistics("dlse", saved.dlse, in, *p, &p->dlse));
  }
  FFPA_RETURN_IF_ERROR(check_gradients(in, g, true, p));
  const Tensor scratch = as_tensor(workspace, in.q);
  return check_overlaps({{"dq", &g.dq},
                         {"dk", &g.dk},
                         {"dv", &g.dv},
                         {"dsink", &g.dsink},
                         {"dmask", &g.dmask},
                         {"workspace", &scratch}},
                        {{"q", &in.q},
                         {"k", &in.k},
                         {"v", &in.v},
                         {"out", &saved.out},
                         {"lse", &saved.lse},
                         {"dout", &saved.dout},
                         {"dlse", &saved.dlse},
                         {"cu_seqlens_q", &in.cu_seqlens_q},
                         {"cu_seqlens_k", &in.cu_seqlens_k},
                         {"seqused_q", &in.seqused_q},
                         {"seqused_k", &in.seqused_k},
                         {"mask", &in.mask},
                         {"alibi_slopes", &in.alibi_slopes},
                         {"sink", &in.sink}});
}

}  // namespace ffpa
