// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "plan/plan.h"

#include <array>

#include "plan/row_units.h"

namespace ffpa {
namespace {

struct FeatureName {
  Feature feature;
  const char* name;
};
constexpr std::array kFeatureNames = {
    FeatureName{kWindow, "window"},
    FeatureName{kCausal, "causal"},
    FeatureName{kSoftcap, "softcap"},
    FeatureName{kSink, "sink"},
    FeatureName{kMask, "mask"},
    FeatureName{kMaskGradient, "dmask"},
    FeatureName{kAlibi, "alibi_slopes"},
    FeatureName{kDropout, "dropout"},
    FeatureName{kSeqused, "seqused"},
    FeatureName{kPacked, "packed input"},
    FeatureName{kLseGradient, "dlse"},
    FeatureName{kDvSmaller, "head_dim of v below that of q"},
    FeatureName{kDvLarger, "head_dim of v above that of q"},
    FeatureName{kNonPositiveScale, "softmax_scale <= 0"},
    FeatureName{kUncountableRows, "strides that a tensor map cannot count in"},
    FeatureName{kUnalignedRows, "rows of q, k or v off multiples of 16 bytes"},
};

std::string head_dims_text(const KernelRow& row) {
  return "head_dim " + std::to_string(row.min_head_dim) + ".." + std::to_string(row.max_head_dim) +
         " in steps of " + std::to_string(row.head_dim_step);
}

bool aligned_rows(const Rows& r, int element_bytes) {
  const auto data = reinterpret_cast<uintptr_t>(r.data);
  const int64_t strides = r.batch_stride | r.head_stride | r.row_stride;
  return data % 16 == 0 && strides * element_bytes % 16 == 0;
}

bool countable_rows(const Problem& p) {
  const int64_t batch = p.packed ? 1 : p.batch;
  const int64_t length_q = p.packed ? p.total_q : p.seqlen_q;
  const int64_t length_k = p.packed ? p.total_k : p.seqlen_k;
  return row_units(p.q, batch, p.heads_q, length_q, p.head_dim_qk).countable() &&
         row_units(p.k, batch, p.heads_kv, length_k, p.head_dim_qk).countable() &&
         row_units(p.v, batch, p.heads_kv, length_k, p.head_dim_v).countable();
}

bool serves_head_dim(const KernelRow& row, int64_t d) {
  return row.min_head_dim <= d && d <= row.max_head_dim && d % row.head_dim_step == 0;
}

}  // namespace

const char* backend_name(Backend backend) {
  switch (backend) {
    case Backend::kAuto:
      return "auto";
    case Backend::kCpu:
      return "cpu";
    case Backend::kSm80:
      return "sm80";
    case Backend::kSm90:
      return "sm90";
  }
  return "?";
}

std::string describe(const KernelRow& row) {
  std::string text = std::string(row.name) + ": ";
  if (row.device == DeviceType::kCpu) {
    text += "cpu,";
  } else {
    text += "cuda, compute capability " + std::to_string(row.min_sm / 10) + "." +
            std::to_string(row.min_sm % 10) + (row.max_sm > row.min_sm ? " and newer," : ",");
  }
  for (DType d : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    if (row.dtypes >> static_cast<int>(d) & 1) text += std::string(" ") + dtype_name(d);
  }
  return text + ", " + head_dims_text(row);
}

uint32_t features_of(const Problem& p, Pass pass) {
  uint32_t f = 0;
  const auto add = [&](bool used, Feature feature) { f |= used ? uint32_t{feature} : 0; };
  const bool left = p.window_left != kUnbounded, right = p.window_right != kUnbounded;
  add(!left && p.window_right == 0, kCausal);
  add(left || (right && p.window_right != 0), kWindow);
  add(p.softcap != 0, kSoftcap);
  add(p.sink != nullptr, kSink);
  add(p.mask.defined(), kMask);
  add(p.alibi_slopes != nullptr, kAlibi);
  add(p.dropout.p != 0, kDropout);
  add(p.seqused_q || p.seqused_k, kSeqused);
  add(p.packed, kPacked);
  add(p.head_dim_v < p.head_dim_qk, kDvSmaller);
  add(p.head_dim_v > p.head_dim_qk, kDvLarger);
  add(p.softmax_scale <= 0, kNonPositiveScale);
  const int bytes = dtype_bytes(p.dtype);
  add(!aligned_rows(p.q, bytes) || !aligned_rows(p.k, bytes) || !aligned_rows(p.v, bytes),
      kUnalignedRows);
  add(!countable_rows(p), kUncountableRows);
  if (pass == Pass::kBackward) {
    add(p.dlse.defined(), kLseGradient);
    add(p.dmask.defined(), kMaskGradient);
  }
  return f;
}

std::string refusal(const KernelRow& row, const Problem& p, Pass pass, int sm) {
  if (row.pass != pass) return "the other pass";
  if (row.device != p.device) return "another device";
  if (p.backend != Backend::kAuto && p.backend != row.backend)
    return "another backend was asked for";
  if (sm < row.min_sm || sm > row.max_sm) {
    return "compute capability " + std::to_string(sm / 10) + "." + std::to_string(sm % 10);
  }
  if (!(row.dtypes >> static_cast<int>(p.dtype) & 1)) {
    return std::string("dtype ") + dtype_name(p.dtype);
  }
  for (int64_t d : {p.head_dim_qk, p.head_dim_v}) {
    if (!serves_head_dim(row, d)) {
      return "head_dim " + std::to_string(d) + " (serves " + head_dims_text(row) + ")";
    }
  }
  const uint32_t missing = features_of(p, pass) & ~row.features;
  for (const FeatureName& f : kFeatureNames) {
    if (missing & f.feature) return f.name;
  }
  return row.refuse ? row.refuse(p) : "";
}

Status select_kernel(const Problem& p, Pass pass, int sm, const KernelRow** selected) {
  std::string reasons;
  for (const KernelRow& row : kernel_table()) {
    const std::string why = refusal(row, p, pass, sm);
    if (why.empty()) {
      *selected = &row;
      return {};
    }
    if (row.pass == pass && row.device == p.device) {
      reasons += (reasons.empty() ? "" : "; ") + std::string(row.name) + " does not serve " + why;
    }
  }
  const std::string call = pass == Pass::kForward ? "forward" : "backward";
  if (reasons.empty()) reasons = "no kernel for this device in this build";
  return Status::unsupported("backend", "a kernel that serves this " + call + " call", reasons);
}

}  // namespace ffpa
