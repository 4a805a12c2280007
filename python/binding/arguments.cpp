// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "arguments.h"

#include <tvm/ffi/dtype.h>

#include <string>

namespace ffpa::python {
namespace {

namespace ffi = tvm::ffi;

const char* exception_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalidValue:
      return "ValueError";
    case ErrorKind::kInvalidType:
      return "TypeError";
    case ErrorKind::kUnsupported:
      return "NotImplementedError";
    case ErrorKind::kOk:
    case ErrorKind::kRuntime:
      break;
  }
  return "RuntimeError";
}

// Python calls some arguments otherwise.
std::string python_name(const std::string& argument) {
  if (argument == "mask") return "attn_mask";
  return argument == "dmask" ? "dattn_mask" : argument;
}

DType to_dtype(DLDataType t) {
  if (t.lanes != 1) return DType::kOther;
  if (t.code == kDLFloat && t.bits == 32) return DType::kFloat32;
  if (t.code == kDLFloat && t.bits == 16) return DType::kFloat16;
  if (t.code == kDLFloat && t.bits == 64) return DType::kFloat64;
  if (t.code == kDLBfloat && t.bits == 16) return DType::kBFloat16;
  if (t.code == kDLBool && t.bits == 8) return DType::kBool;
  if (t.code == kDLInt && t.bits == 32) return DType::kInt32;
  if (t.code == kDLInt && t.bits == 64) return DType::kInt64;
  return DType::kOther;
}

std::string dtype_text(DLDataType t) {
  if (t.code == kDLComplex) return "complex" + std::to_string(t.bits);  // tvm-ffi has no name
  return ffi::DLDataTypeToString(t);
}

DeviceType to_device(DLDeviceType type) {
  switch (type) {
    case kDLCPU:
    case kDLCUDAHost:  // pinned
      return DeviceType::kCpu;
    case kDLCUDA:
    case kDLCUDAManaged:
      return DeviceType::kCuda;
    default:
      return DeviceType::kOther;
  }
}

Tensor to_tensor(const DLTensor& t) {
  Tensor tensor;
  tensor.data = static_cast<char*>(t.data) + t.byte_offset;
  tensor.dtype = to_dtype(t.dtype);
  tensor.device = to_device(t.device.device_type);
  tensor.device_index = tensor.device == DeviceType::kCuda ? t.device.device_id : 0;
  tensor.rank = t.ndim;
  int64_t contiguous = 1;
  for (int i = t.ndim - 1; i >= 0; --i) {
    tensor.shape[i] = t.shape[i];
    tensor.stride[i] = t.strides ? t.strides[i] : contiguous;
    contiguous *= t.shape[i];
  }
  return tensor;
}

}  // namespace

void Arguments::raise_unless_ok(const Status& status) const {
  if (status.ok()) return;
  std::string message = status.message();
  const std::string name = python_name(status.argument());
  if (status.kind() != ErrorKind::kRuntime) {
    std::string got = status.got();
    if (name == unknown_name_ && got == dtype_name(DType::kOther)) got = unknown_dtype_;
    message = name + ": expected " + status.expected() + ", got " + got;
  }
  throw ffi::Error(exception_name(status.kind()), message, "");
}

ffi::AnyView Arguments::next(const char* name) {
  if (at_ == count_) throw ffi::Error("TypeError", std::string(name) + ": missing", "");
  return ffi::AnyView::CopyFromTVMFFIAny(args_[at_++]);
}

Tensor Arguments::tensor(const char* name) {
  const ffi::AnyView value = next(name);
  if (value == nullptr) return {};
  const auto view = value.try_cast<DLTensor*>();
  if (!view) {
    raise_unless_ok(Status::invalid_type(name, "an array or tensor", value.GetTypeKey()));
  }
  const DLTensor& t = **view;
  if (t.ndim < 1 || t.ndim > Tensor::kMaxRank) {
    raise_unless_ok(Status::invalid_value(name, "1 to 4 dimensions", std::to_string(t.ndim)));
  }
  const Tensor tensor = to_tensor(t);
  if (tensor.dtype == DType::kOther && unknown_name_.empty()) {
    unknown_name_ = name;
    unknown_dtype_ = dtype_text(t.dtype);
  }
  return tensor;
}

int64_t Arguments::integer(const char* name) {
  const ffi::AnyView value = next(name);
  const auto number = value.try_cast<int64_t>();
  if (!number) raise_unless_ok(Status::invalid_type(name, "an integer", value.GetTypeKey()));
  return *number;
}

double Arguments::number(const char* name) {
  const ffi::AnyView value = next(name);
  const auto number = value.try_cast<double>();
  if (!number) raise_unless_ok(Status::invalid_type(name, "a number", value.GetTypeKey()));
  return *number;
}

bool Arguments::boolean(const char* name) {
  const ffi::AnyView value = next(name);
  const auto truth = value.try_cast<bool>();
  if (!truth) raise_unless_ok(Status::invalid_type(name, "True or False", value.GetTypeKey()));
  return *truth;
}

AttentionInputs Arguments::inputs() {
  AttentionInputs in;
  in.q = tensor("q");
  in.k = tensor("k");
  in.v = tensor("v");
  in.cu_seqlens_q = tensor("cu_seqlens_q");
  in.cu_seqlens_k = tensor("cu_seqlens_k");
  in.max_seqlen_q = integer("max_seqlen_q");
  in.max_seqlen_k = integer("max_seqlen_k");
  in.seqused_q = tensor("seqused_q");
  in.seqused_k = tensor("seqused_k");
  in.mask = tensor("attn_mask");
  in.alibi_slopes = tensor("alibi_slopes");
  in.sink = tensor("sink");
  return in;
}

AttentionOptions Arguments::options() {
  AttentionOptions o;
  const ffi::AnyView scale = next("softmax_scale");
  if (scale != nullptr) {
    --at_;
    o.softmax_scale = number("softmax_scale");
  }
  o.causal = boolean("causal");
  o.window_left = integer("window_left");
  o.window_right = integer("window_right");
  o.softcap = number("softcap");
  o.dropout_p = number("dropout_p");
  o.dropout_seed = static_cast<uint64_t>(integer("dropout_seed"));
  o.dropout_offset = static_cast<uint64_t>(integer("dropout_offset"));
  o.backend = static_cast<Backend>(integer("backend"));
  o.deterministic = boolean("deterministic");
  o.workspace_limit = integer("workspace_limit");
  o.num_threads = static_cast<int>(integer("num_threads"));
  return o;
}

BackwardOutputs Arguments::gradients() {
  BackwardOutputs g;
  g.dq = tensor("dq");
  g.dk = tensor("dk");
  g.dv = tensor("dv");
  g.dsink = tensor("dsink");
  g.dmask = tensor("dattn_mask");
  return g;
}

Workspace Arguments::workspace() {
  constexpr uintptr_t kAlignment = 256;
  const Tensor t = tensor("workspace");
  if (!t.defined()) return {};
  const auto begin = reinterpret_cast<uintptr_t>(t.data);
  const uintptr_t skip = (kAlignment - begin % kAlignment) % kAlignment;
  const auto bytes = static_cast<uintptr_t>(t.numel());
  if (bytes <= skip) return {};
  return {static_cast<char*>(t.data) + skip, bytes - skip};
}

void* Arguments::stream() { return reinterpret_cast<void*>(integer("stream")); }

void Arguments::done() {
  if (at_ != count_) {
    throw ffi::Error(
        "TypeError",
        "arguments: expected " + std::to_string(at_) + ", got " + std::to_string(count_), "");
  }
}

}  // namespace ffpa::python
