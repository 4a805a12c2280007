// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Bad arguments, one fault at a time: the status names the argument, what was expected and what
// came, in one line, and nothing has been written.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/test_call.h"

namespace ffpa::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr auto kValue = ErrorKind::kInvalidValue;
constexpr auto kType = ErrorKind::kInvalidType;

enum Base { kDense, kPacked, kPlain };  // kPlain: dense without options
enum Direction { kForward, kBackward };

struct BadInput {
  const char* name;
  Base base;
  Direction direction;
  const char* argument;
  ErrorKind kind;
  void (*spoil)(TestCall&);
};

void PrintTo(const BadInput& bad, std::ostream* os) { *os << bad.name; }

// bfloat16, 2 sequences, heads 4/2, 5 queries, 7 keys, head_dim 16/24, with every tensor argument.
Case base_case(Base base) {
  Case c;
  c.dtype = DType::kBFloat16;
  c.lengths_q = {5, 5};
  c.lengths_k = {7, 7};
  c.heads_q = 4;
  c.heads_kv = 2;
  c.head_dim = 16;
  c.head_dim_v = 24;
  if (base == kPlain) return c;
  c.packed = base == kPacked;
  c.mask = Mask::kOfInputDtype;
  c.mask_broadcast = {1};
  c.alibi_rank = 2;
  c.sink = true;
  c.used_q = {4, 5};
  c.used_k = {7, 3};
  c.dlse = true;
  return c;
}

void set_value(const Tensor& t, int64_t index, int32_t value) {
  static_cast<int32_t*>(t.data)[index] = value;
}

// float32 numbers for tensors that a base case lacks.
Tensor spare(std::initializer_list<int64_t> shape) {
  alignas(256) static float numbers[256] = {};
  return Tensor::contiguous(numbers, DType::kFloat32, shape);
}

const BadInput kRows[] = {
    // clang-format off
    {"q_undefined", kPlain, kForward, "q", kValue, [](TestCall& c) { c.inputs.q = {}; }},
    {"q_rank_3", kPlain, kForward, "q", kValue, [](TestCall& c) { c.inputs.q.rank = 3; }},
    {"q_rank_5", kPlain, kForward, "q", kValue, [](TestCall& c) { c.inputs.q.rank = 5; }},
    {"q_rank_negative", kPlain, kForward, "q", kValue, [](TestCall& c) { c.inputs.q.rank = -1; }},
    {"q_dtype_int32", kPlain, kForward, "q", kType, [](TestCall& c) { c.inputs.q.dtype = DType::kInt32; }},
    {"q_dtype_int64", kPlain, kForward, "q", kType, [](TestCall& c) { c.inputs.q.dtype = DType::kInt64; }},
    {"q_dtype_bool", kPlain, kForward, "q", kType, [](TestCall& c) { c.inputs.q.dtype = DType::kBool; }},
    {"q_dtype_other", kPlain, kForward, "q", kType, [](TestCall& c) { c.inputs.q.dtype = DType::kOther; }},
    {"q_device_other", kPlain, kForward, "q", kValue, [](TestCall& c) { c.inputs.q.device = DeviceType::kOther; }},
    {"q_null", kPlain, kForward, "q", kValue, [](TestCall& c) { c.inputs.q.data = nullptr; }},
    {"q_misaligned", kPlain, kForward, "q", kValue, [](TestCall& c) { c.inputs.q.data = static_cast<char*>(c.inputs.q.data) + 1; }},
    {"q_last_stride_2", kPlain, kForward, "q", kValue, [](TestCall& c) { c.inputs.q.stride[3] = 2; }},
    {"q_last_stride_0", kPlain, kForward, "q", kValue, [](TestCall& c) { c.inputs.q.stride[3] = 0; }},
    {"q_negative_stride", kPlain, kForward, "q", kValue, [](TestCall& c) { c.inputs.q.stride[2] = -16; }},
    {"q_negative_size", kPlain, kForward, "q", kValue, [](TestCall& c) { c.inputs.q.shape[2] = -5; }},
    {"q_offsets_overflow", kPlain, kForward, "q", kValue, [](TestCall& c) { c.inputs.q.stride[0] = int64_t{1} << 62; }},
    {"q_no_heads", kPlain, kForward, "q", kValue, [](TestCall& c) { c.inputs.q.shape[1] = 0; }},
    {"q_head_dim_4", kPlain, kForward, "q", kValue, [](TestCall& c) { c.inputs.q.shape[3] = c.inputs.k.shape[3] = 4; }},
    {"q_head_dim_12", kPlain, kForward, "q", kValue, [](TestCall& c) { c.inputs.q.shape[3] = c.inputs.k.shape[3] = 12; }},
    {"q_head_dim_0", kPlain, kForward, "q", kValue, [](TestCall& c) { c.inputs.q.shape[3] = c.inputs.k.shape[3] = 0; }},
    {"q_head_dim_1032", kPlain, kForward, "q", kValue, [](TestCall& c) { c.inputs.q.shape[3] = c.inputs.k.shape[3] = 1032; }},
    {"q_too_long", kPlain, kForward, "q", kValue, [](TestCall& c) { c.inputs.q.shape[2] = int64_t{1} << 30; }},

    {"k_undefined", kPlain, kForward, "k", kValue, [](TestCall& c) { c.inputs.k = {}; }},
    {"k_rank_3", kPlain, kForward, "k", kValue, [](TestCall& c) { c.inputs.k.rank = 3; }},
    {"k_dtype_float16", kPlain, kForward, "k", kType, [](TestCall& c) { c.inputs.k.dtype = DType::kFloat16; }},
    {"k_device_cuda", kPlain, kForward, "k", kValue, [](TestCall& c) { c.inputs.k.device = DeviceType::kCuda; }},
    {"k_null", kPlain, kForward, "k", kValue, [](TestCall& c) { c.inputs.k.data = nullptr; }},
    {"k_last_stride_3", kPlain, kForward, "k", kValue, [](TestCall& c) { c.inputs.k.stride[3] = 3; }},
    {"k_negative_stride", kPlain, kForward, "k", kValue, [](TestCall& c) { c.inputs.k.stride[1] = -1; }},
    {"k_head_ratio", kPlain, kForward, "k", kValue, [](TestCall& c) { c.inputs.k.shape[1] = c.inputs.v.shape[1] = 3; }},
    {"k_more_heads_than_q", kPlain, kForward, "k", kValue, [](TestCall& c) { c.inputs.k.shape[1] = c.inputs.v.shape[1] = 8; }},
    {"k_no_heads", kPlain, kForward, "k", kValue, [](TestCall& c) { c.inputs.k.shape[1] = 0; }},
    {"k_head_dim", kPlain, kForward, "k", kValue, [](TestCall& c) { c.inputs.k.shape[3] = 8; }},
    {"k_batch", kPlain, kForward, "k", kValue, [](TestCall& c) { c.inputs.k.shape[0] = 1; }},
    {"k_too_long", kPlain, kForward, "k", kValue, [](TestCall& c) { c.inputs.k.shape[2] = c.inputs.v.shape[2] = (int64_t{1} << 29) + 1; }},

    {"v_undefined", kPlain, kForward, "v", kValue, [](TestCall& c) { c.inputs.v = {}; }},
    {"v_rank_2", kPlain, kForward, "v", kValue, [](TestCall& c) { c.inputs.v.rank = 2; }},
    {"v_dtype_float32", kPlain, kForward, "v", kType, [](TestCall& c) { c.inputs.v.dtype = DType::kFloat32; }},
    {"v_device_cuda", kPlain, kForward, "v", kValue, [](TestCall& c) { c.inputs.v.device = DeviceType::kCuda; }},
    {"v_null", kPlain, kForward, "v", kValue, [](TestCall& c) { c.inputs.v.data = nullptr; }},
    {"v_last_stride_2", kPlain, kForward, "v", kValue, [](TestCall& c) { c.inputs.v.stride[3] = 2; }},
    {"v_heads", kPlain, kForward, "v", kValue, [](TestCall& c) { c.inputs.v.shape[1] = 1; }},
    {"v_seqlen", kPlain, kForward, "v", kValue, [](TestCall& c) { c.inputs.v.shape[2] = 6; }},
    {"v_batch", kPlain, kForward, "v", kValue, [](TestCall& c) { c.inputs.v.shape[0] = 3; }},
    {"v_head_dim_20", kPlain, kForward, "v", kValue, [](TestCall& c) { c.inputs.v.shape[3] = 20; }},
    {"v_head_dim_2048", kPlain, kForward, "v", kValue, [](TestCall& c) { c.inputs.v.shape[3] = 2048; }},

    {"max_seqlen_q_dense", kPlain, kForward, "max_seqlen_q", kValue, [](TestCall& c) { c.inputs.max_seqlen_q = 5; }},
    {"max_seqlen_k_dense", kPlain, kForward, "max_seqlen_k", kValue, [](TestCall& c) { c.inputs.max_seqlen_k = 7; }},

    {"out_undefined", kPlain, kForward, "out", kValue, [](TestCall& c) { c.outputs.out = {}; }},
    {"out_rank_3", kPlain, kForward, "out", kValue, [](TestCall& c) { c.outputs.out.rank = 3; }},
    {"out_dtype_float32", kPlain, kForward, "out", kType, [](TestCall& c) { c.outputs.out.dtype = DType::kFloat32; }},
    {"out_head_dim_of_q", kPlain, kForward, "out", kValue, [](TestCall& c) { c.outputs.out.shape[3] = 16; }},
    {"out_heads", kPlain, kForward, "out", kValue, [](TestCall& c) { c.outputs.out.shape[1] = 2; }},
    {"out_batch", kPlain, kForward, "out", kValue, [](TestCall& c) { c.outputs.out.shape[0] = 1; }},
    {"out_seqlen", kPlain, kForward, "out", kValue, [](TestCall& c) { c.outputs.out.shape[2] = 7; }},
    {"out_device", kPlain, kForward, "out", kValue, [](TestCall& c) { c.outputs.out.device = DeviceType::kCuda; }},
    {"out_null", kPlain, kForward, "out", kValue, [](TestCall& c) { c.outputs.out.data = nullptr; }},
    {"out_last_stride_2", kPlain, kForward, "out", kValue, [](TestCall& c) { c.outputs.out.stride[3] = 2; }},
    {"out_stride_0", kPlain, kForward, "out", kValue, [](TestCall& c) { c.outputs.out.stride[0] = 0; }},
    {"out_rows_overlap", kPlain, kForward, "out", kValue, [](TestCall& c) { c.outputs.out.stride[2] = 8; }},
    {"out_is_q", kPlain, kForward, "out", kValue, [](TestCall& c) { c.outputs.out.data = c.inputs.q.data; }},
    {"out_overlaps_k", kPlain, kForward, "out", kValue, [](TestCall& c) { c.outputs.out.data = static_cast<char*>(c.inputs.k.data) + 64; }},
    {"out_overlaps_v", kPlain, kForward, "out", kValue, [](TestCall& c) { c.outputs.out.data = static_cast<char*>(c.inputs.v.data) - 2; }},
    {"lse_dtype", kPlain, kForward, "lse", kType, [](TestCall& c) { c.outputs.lse.dtype = DType::kBFloat16; }},
    {"lse_rank", kPlain, kForward, "lse", kValue, [](TestCall& c) { c.outputs.lse.rank = 2; }},
    {"lse_transposed", kPlain, kForward, "lse", kValue, [](TestCall& c) { std::swap(c.outputs.lse.shape[1], c.outputs.lse.shape[2]); }},
    {"lse_device", kPlain, kForward, "lse", kValue, [](TestCall& c) { c.outputs.lse.device = DeviceType::kCuda; }},
    {"lse_null", kPlain, kForward, "lse", kValue, [](TestCall& c) { c.outputs.lse.data = nullptr; }},
    {"lse_stride_0", kPlain, kForward, "lse", kValue, [](TestCall& c) { c.outputs.lse.stride[1] = 0; }},
    {"lse_overlaps_out", kPlain, kForward, "lse", kValue, [](TestCall& c) { c.outputs.lse.data = c.outputs.out.data; }},
    {"lse_overlaps_q", kPlain, kForward, "lse", kValue, [](TestCall& c) { c.outputs.lse.data = c.inputs.q.data; }},
    {"lse_packed_tokens_first", kPacked, kForward, "lse", kValue, [](TestCall& c) { std::swap(c.outputs.lse.shape[0], c.outputs.lse.shape[1]); }},

    {"mask_dtype_int32", kDense, kForward, "mask", kType, [](TestCall& c) { c.inputs.mask.dtype = DType::kInt32; }},
    {"mask_dtype_float16", kDense, kForward, "mask", kType, [](TestCall& c) { c.inputs.mask.dtype = DType::kFloat16; }},
    {"mask_keys", kDense, kForward, "mask", kValue, [](TestCall& c) { c.inputs.mask.shape[3] = 6; }},
    {"mask_queries", kDense, kForward, "mask", kValue, [](TestCall& c) { c.inputs.mask.shape[2] = 4; }},
    {"mask_heads_of_kv", kDense, kForward, "mask", kValue, [](TestCall& c) { c.inputs.mask.shape[1] = 2; }},
    {"mask_batch", kDense, kForward, "mask", kValue, [](TestCall& c) { c.inputs.mask.shape[0] = 3; }},
    {"mask_empty", kDense, kForward, "mask", kValue, [](TestCall& c) { c.inputs.mask.shape[3] = 0; }},
    {"mask_rank_5", kDense, kForward, "mask", kValue, [](TestCall& c) { c.inputs.mask.rank = 5; }},
    {"mask_left_aligned", kDense, kForward, "mask", kValue, [](TestCall& c) { c.inputs.mask.rank = 2; }},
    {"mask_device", kDense, kForward, "mask", kValue, [](TestCall& c) { c.inputs.mask.device = DeviceType::kCuda; }},
    {"mask_null", kDense, kForward, "mask", kValue, [](TestCall& c) { c.inputs.mask.data = nullptr; }},
    {"mask_negative_stride", kDense, kForward, "mask", kValue, [](TestCall& c) { c.inputs.mask.stride[2] = -7; }},
    {"mask_misaligned", kDense, kForward, "mask", kValue, [](TestCall& c) { c.inputs.mask.data = static_cast<char*>(c.inputs.mask.data) + 1; }},
    {"mask_packed_longest_sequence", kPacked, kForward, "mask", kValue, [](TestCall& c) { c.inputs.max_seqlen_k = 20; }},

    {"alibi_dtype", kDense, kForward, "alibi_slopes", kType, [](TestCall& c) { c.inputs.alibi_slopes.dtype = DType::kBFloat16; }},
    {"alibi_heads", kDense, kForward, "alibi_slopes", kValue, [](TestCall& c) { c.inputs.alibi_slopes.shape[1] = 2; }},
    {"alibi_batch", kDense, kForward, "alibi_slopes", kValue, [](TestCall& c) { c.inputs.alibi_slopes.shape[0] = 4; }},
    {"alibi_rank_1_batch", kDense, kForward, "alibi_slopes", kValue, [](TestCall& c) { c.inputs.alibi_slopes.rank = 1; }},
    {"alibi_rank_3", kDense, kForward, "alibi_slopes", kValue, [](TestCall& c) { c.inputs.alibi_slopes.rank = 3; }},
    {"alibi_device", kDense, kForward, "alibi_slopes", kValue, [](TestCall& c) { c.inputs.alibi_slopes.device = DeviceType::kCuda; }},
    {"alibi_null", kDense, kForward, "alibi_slopes", kValue, [](TestCall& c) { c.inputs.alibi_slopes.data = nullptr; }},
    {"sink_dtype", kDense, kForward, "sink", kType, [](TestCall& c) { c.inputs.sink.dtype = DType::kBFloat16; }},
    {"sink_heads", kDense, kForward, "sink", kValue, [](TestCall& c) { c.inputs.sink.shape[0] = 2; }},
    {"sink_rank_2", kDense, kForward, "sink", kValue, [](TestCall& c) { c.inputs.sink = Tensor::contiguous(c.inputs.sink.data, DType::kFloat32, {1, 4}); }},
    {"sink_device", kDense, kForward, "sink", kValue, [](TestCall& c) { c.inputs.sink.device = DeviceType::kCuda; }},
    {"sink_null", kDense, kForward, "sink", kValue, [](TestCall& c) { c.inputs.sink.data = nullptr; }},

    {"seqused_q_dtype", kDense, kForward, "seqused_q", kType, [](TestCall& c) { c.inputs.seqused_q.dtype = DType::kInt64; }},
    {"seqused_q_length", kDense, kForward, "seqused_q", kValue, [](TestCall& c) { c.inputs.seqused_q.shape[0] = 3; }},
    {"seqused_q_rank", kDense, kForward, "seqused_q", kValue, [](TestCall& c) { c.inputs.seqused_q.rank = 2; }},
    {"seqused_q_stride", kDense, kForward, "seqused_q", kValue, [](TestCall& c) { c.inputs.seqused_q.stride[0] = 2; }},
    {"seqused_q_device", kDense, kForward, "seqused_q", kValue, [](TestCall& c) { c.inputs.seqused_q.device = DeviceType::kCuda; }},
    {"seqused_q_null", kDense, kForward, "seqused_q", kValue, [](TestCall& c) { c.inputs.seqused_q.data = nullptr; }},
    {"seqused_q_too_large", kDense, kForward, "seqused_q", kValue, [](TestCall& c) { set_value(c.inputs.seqused_q, 1, 6); }},
    {"seqused_q_negative", kDense, kForward, "seqused_q", kValue, [](TestCall& c) { set_value(c.inputs.seqused_q, 0, -1); }},
    {"seqused_k_dtype", kPacked, kForward, "seqused_k", kType, [](TestCall& c) { c.inputs.seqused_k.dtype = DType::kFloat32; }},
    {"seqused_k_length", kPacked, kForward, "seqused_k", kValue, [](TestCall& c) { c.inputs.seqused_k.shape[0] = 1; }},
    {"seqused_k_too_large", kPacked, kForward, "seqused_k", kValue, [](TestCall& c) { set_value(c.inputs.seqused_k, 0, 8); }},

    {"softmax_scale_nan", kPlain, kForward, "softmax_scale", kValue, [](TestCall& c) { c.options.softmax_scale = kNan; }},
    {"softmax_scale_inf", kPlain, kForward, "softmax_scale", kValue, [](TestCall& c) { c.options.softmax_scale = -kInf; }},
    {"softmax_scale_over_float32", kPlain, kForward, "softmax_scale", kValue, [](TestCall& c) { c.options.softmax_scale = 1e300; }},
    {"softcap_negative", kPlain, kForward, "softcap", kValue, [](TestCall& c) { c.options.softcap = -1; }},
    {"softcap_nan", kPlain, kForward, "softcap", kValue, [](TestCall& c) { c.options.softcap = kNan; }},
    {"softcap_inf", kPlain, kForward, "softcap", kValue, [](TestCall& c) { c.options.softcap = kInf; }},
    {"softcap_under_float32", kPlain, kForward, "softcap", kValue, [](TestCall& c) { c.options.softcap = 1e-60; }},
    {"window_left_minus_2", kPlain, kForward, "window_left", kValue, [](TestCall& c) { c.options.window_left = -2; }},
    {"window_right_minus_5", kPlain, kForward, "window_right", kValue, [](TestCall& c) { c.options.window_right = -5; }},
    {"dropout_negative", kPlain, kForward, "dropout_p", kValue, [](TestCall& c) { c.options.dropout_p = -0.1; }},
    {"dropout_1", kPlain, kForward, "dropout_p", kValue, [](TestCall& c) { c.options.dropout_p = 1; }},
    {"dropout_nan", kPlain, kForward, "dropout_p", kValue, [](TestCall& c) { c.options.dropout_p = kNan; }},
    {"backend_sm90_for_cpu", kPlain, kForward, "backend", kValue, [](TestCall& c) { c.options.backend = Backend::kSm90; }},
    {"backend_sm80_for_cpu", kPlain, kForward, "backend", kValue, [](TestCall& c) { c.options.backend = Backend::kSm80; }},
    {"q_batch_too_large", kPlain, kForward, "q", kValue, [](TestCall& c) {
       for (Tensor* t : {&c.inputs.q, &c.inputs.k, &c.inputs.v}) t->shape[0] = int64_t{1} << 45, t->stride[0] = 0;
     }},
    {"workspace_limit", kPlain, kForward, "workspace_limit", kValue, [](TestCall& c) { c.options.workspace_limit = -2; }},
    {"num_threads", kPlain, kForward, "num_threads", kValue, [](TestCall& c) { c.options.num_threads = -1; }},

    {"cu_seqlens_q_missing", kPacked, kForward, "cu_seqlens_q", kValue, [](TestCall& c) { c.inputs.cu_seqlens_q = {}; }},
    {"cu_seqlens_k_missing", kPacked, kForward, "cu_seqlens_k", kValue, [](TestCall& c) { c.inputs.cu_seqlens_k = {}; }},
    {"cu_seqlens_with_dense_q", kPlain, kForward, "q", kValue, [](TestCall& c) { c.inputs.cu_seqlens_q = c.inputs.cu_seqlens_k = spare({3}); }},
    {"cu_seqlens_q_int64", kPacked, kForward, "cu_seqlens_q", kType, [](TestCall& c) { c.inputs.cu_seqlens_q.dtype = DType::kInt64; }},
    {"cu_seqlens_k_float32", kPacked, kForward, "cu_seqlens_k", kType, [](TestCall& c) { c.inputs.cu_seqlens_k.dtype = DType::kFloat32; }},
    {"cu_seqlens_q_rank_2", kPacked, kForward, "cu_seqlens_q", kValue, [](TestCall& c) { c.inputs.cu_seqlens_q.rank = 2; }},
    {"cu_seqlens_q_device", kPacked, kForward, "cu_seqlens_q", kValue, [](TestCall& c) { c.inputs.cu_seqlens_q.device = DeviceType::kCuda; }},
    {"cu_seqlens_k_device", kPacked, kForward, "cu_seqlens_k", kValue, [](TestCall& c) { c.inputs.cu_seqlens_k.device = DeviceType::kCuda; }},
    {"cu_seqlens_q_empty", kPacked, kForward, "cu_seqlens_q", kValue, [](TestCall& c) { c.inputs.cu_seqlens_q.shape[0] = c.inputs.cu_seqlens_k.shape[0] = 0; }},
    {"cu_seqlens_k_length", kPacked, kForward, "cu_seqlens_k", kValue, [](TestCall& c) { c.inputs.cu_seqlens_k.shape[0] = 2; }},
    {"cu_seqlens_q_stride", kPacked, kForward, "cu_seqlens_q", kValue, [](TestCall& c) { c.inputs.cu_seqlens_q.stride[0] = 2; }},
    {"cu_seqlens_q_null", kPacked, kForward, "cu_seqlens_q", kValue, [](TestCall& c) { c.inputs.cu_seqlens_q.data = nullptr; }},
    {"cu_seqlens_q_first", kPacked, kForward, "cu_seqlens_q", kValue, [](TestCall& c) { set_value(c.inputs.cu_seqlens_q, 0, 1); }},
    {"cu_seqlens_k_first_negative", kPacked, kForward, "cu_seqlens_k", kValue, [](TestCall& c) { set_value(c.inputs.cu_seqlens_k, 0, -1); }},
    {"cu_seqlens_q_last_small", kPacked, kForward, "cu_seqlens_q", kValue, [](TestCall& c) { set_value(c.inputs.cu_seqlens_q, 2, 9); }},
    {"cu_seqlens_k_last_large", kPacked, kForward, "cu_seqlens_k", kValue, [](TestCall& c) { c.inputs.max_seqlen_k = 8; c.inputs.mask = {}; set_value(c.inputs.cu_seqlens_k, 2, 15); }},
    {"cu_seqlens_q_decreasing", kPacked, kForward, "cu_seqlens_q", kValue, [](TestCall& c) { set_value(c.inputs.cu_seqlens_q, 1, 11); c.inputs.max_seqlen_q = 11; c.inputs.mask = {}; }},
    {"cu_seqlens_k_decreasing", kPacked, kForward, "cu_seqlens_k", kValue, [](TestCall& c) { set_value(c.inputs.cu_seqlens_k, 1, -3); }},
    {"max_seqlen_q_too_small", kPacked, kForward, "cu_seqlens_q", kValue, [](TestCall& c) { c.inputs.max_seqlen_q = 4; }},
    {"max_seqlen_k_too_small", kPacked, kForward, "cu_seqlens_k", kValue, [](TestCall& c) { c.inputs.max_seqlen_k = 0; }},
    {"max_seqlen_q_negative", kPacked, kForward, "max_seqlen_q", kValue, [](TestCall& c) { c.inputs.max_seqlen_q = -1; }},
    {"max_seqlen_k_over_limit", kPacked, kForward, "max_seqlen_k", kValue, [](TestCall& c) { c.inputs.max_seqlen_k = int64_t{1} << 40; }},
    {"packed_q_rank_4", kPacked, kForward, "q", kValue, [](TestCall& c) { c.inputs.q.rank = 4; }},
    {"packed_v_tokens", kPacked, kForward, "v", kValue, [](TestCall& c) { c.inputs.v.shape[0] = 13; }},
    {"packed_k_tokens", kPacked, kForward, "cu_seqlens_k", kValue, [](TestCall& c) { c.inputs.k.shape[0] = c.inputs.v.shape[0] = 13; }},
    {"packed_q_head_ratio", kPacked, kForward, "k", kValue, [](TestCall& c) { c.inputs.k.shape[1] = c.inputs.v.shape[1] = 3; }},

    {"saved_out_undefined", kDense, kBackward, "out", kValue, [](TestCall& c) { c.saved.out = {}; }},
    {"saved_out_dtype", kDense, kBackward, "out", kType, [](TestCall& c) { c.saved.out.dtype = DType::kFloat16; }},
    {"saved_out_shape", kDense, kBackward, "out", kValue, [](TestCall& c) { c.saved.out.shape[3] = 16; }},
    {"saved_lse_undefined", kDense, kBackward, "lse", kValue, [](TestCall& c) { c.saved.lse = {}; }},
    {"saved_lse_dtype", kDense, kBackward, "lse", kType, [](TestCall& c) { c.saved.lse.dtype = DType::kBFloat16; }},
    {"saved_lse_shape", kDense, kBackward, "lse", kValue, [](TestCall& c) { c.saved.lse.shape[2] = 4; }},
    {"saved_lse_null", kDense, kBackward, "lse", kValue, [](TestCall& c) { c.saved.lse.data = nullptr; }},
    {"dout_undefined", kDense, kBackward, "dout", kValue, [](TestCall& c) { c.saved.dout = {}; }},
    {"dout_dtype", kDense, kBackward, "dout", kType, [](TestCall& c) { c.saved.dout.dtype = DType::kFloat32; }},
    {"dout_heads", kDense, kBackward, "dout", kValue, [](TestCall& c) { c.saved.dout.shape[1] = 2; }},
    {"dout_head_dim", kDense, kBackward, "dout", kValue, [](TestCall& c) { c.saved.dout.shape[3] = 16; }},
    {"dout_device", kDense, kBackward, "dout", kValue, [](TestCall& c) { c.saved.dout.device = DeviceType::kCuda; }},
    {"dout_last_stride_2", kDense, kBackward, "dout", kValue, [](TestCall& c) { c.saved.dout.stride[3] = 2; }},
    {"dout_null", kDense, kBackward, "dout", kValue, [](TestCall& c) { c.saved.dout.data = nullptr; }},
    {"dlse_dtype", kDense, kBackward, "dlse", kType, [](TestCall& c) { c.saved.dlse.dtype = DType::kBFloat16; }},
    {"dlse_shape", kDense, kBackward, "dlse", kValue, [](TestCall& c) { c.saved.dlse.shape[0] = 1; }},
    {"dlse_device", kDense, kBackward, "dlse", kValue, [](TestCall& c) { c.saved.dlse.device = DeviceType::kCuda; }},
    {"dlse_null", kDense, kBackward, "dlse", kValue, [](TestCall& c) { c.saved.dlse.data = nullptr; }},
    {"dq_shape", kDense, kBackward, "dq", kValue, [](TestCall& c) { c.gradients.dq.shape[3] = 8; }},
    {"dq_rank", kDense, kBackward, "dq", kValue, [](TestCall& c) { c.gradients.dq.rank = 3; }},
    {"dq_dtype_float32", kDense, kBackward, "dq", kType, [](TestCall& c) { c.gradients.dq.dtype = DType::kFloat32; }},
    {"dq_device", kDense, kBackward, "dq", kValue, [](TestCall& c) { c.gradients.dq.device = DeviceType::kCuda; }},
    {"dq_null", kDense, kBackward, "dq", kValue, [](TestCall& c) { c.gradients.dq.data = nullptr; }},
    {"dq_is_q", kDense, kBackward, "dq", kValue, [](TestCall& c) { c.gradients.dq.data = c.inputs.q.data; }},
    {"dq_is_dout", kDense, kBackward, "dq", kValue, [](TestCall& c) { c.gradients.dq.data = c.saved.dout.data; }},
    {"dq_is_out", kDense, kBackward, "dq", kValue, [](TestCall& c) { c.gradients.dq.data = c.saved.out.data; }},
    {"dq_overlaps_lse", kDense, kBackward, "dq", kValue, [](TestCall& c) { c.gradients.dq.data = c.saved.lse.data; }},
    {"dk_is_dq", kDense, kBackward, "dk", kValue, [](TestCall& c) { c.gradients.dk.data = c.gradients.dq.data; }},
    {"dk_shape_of_q", kDense, kBackward, "dk", kValue, [](TestCall& c) { c.gradients.dk.shape[1] = 4; }},
    {"dk_is_k", kDense, kBackward, "dk", kValue, [](TestCall& c) { c.gradients.dk.data = c.inputs.k.data; }},
    {"dk_stride_0", kDense, kBackward, "dk", kValue, [](TestCall& c) { c.gradients.dk.stride[1] = 0; }},
    {"dv_shape_of_k", kDense, kBackward, "dv", kValue, [](TestCall& c) { c.gradients.dv.shape[3] = 16; }},
    {"dv_dtype", kDense, kBackward, "dv", kType, [](TestCall& c) { c.gradients.dv.dtype = DType::kFloat16; }},
    {"dv_overlaps_dk", kDense, kBackward, "dv", kValue, [](TestCall& c) { c.gradients.dv.data = static_cast<char*>(c.gradients.dk.data) + 32; }},
    {"dv_last_stride_2", kDense, kBackward, "dv", kValue, [](TestCall& c) { c.gradients.dv.stride[3] = 2; }},
    {"dsink_without_sink", kPlain, kBackward, "dsink", kValue, [](TestCall& c) { c.gradients.dsink = spare({4}); }},
    {"dsink_dtype", kDense, kBackward, "dsink", kType, [](TestCall& c) { c.gradients.dsink.dtype = DType::kBFloat16; }},
    {"dsink_shape", kDense, kBackward, "dsink", kValue, [](TestCall& c) { c.gradients.dsink.shape[0] = 2; }},
    {"dsink_is_sink", kDense, kBackward, "dsink", kValue, [](TestCall& c) { c.gradients.dsink.data = c.inputs.sink.data; }},
    {"dmask_without_mask", kPlain, kBackward, "dmask", kValue, [](TestCall& c) { c.gradients.dmask = spare({5, 7}); }},
    {"dmask_of_bool_mask", kDense, kBackward, "dmask", kValue, [](TestCall& c) { c.inputs.mask.dtype = DType::kBool; }},
    {"dmask_dtype", kDense, kBackward, "dmask", kType, [](TestCall& c) { c.gradients.dmask.dtype = DType::kFloat16; }},
    {"dmask_shape", kDense, kBackward, "dmask", kValue, [](TestCall& c) { c.gradients.dmask.shape[1] = 4; }},
    {"dmask_stride_0", kDense, kBackward, "dmask", kValue, [](TestCall& c) { c.gradients.dmask.stride[2] = 0; }},
    {"dmask_is_mask", kDense, kBackward, "dmask", kValue, [](TestCall& c) { c.gradients.dmask.data = c.inputs.mask.data; }},
    {"dmask_is_dq", kDense, kBackward, "dmask", kValue, [](TestCall& c) { c.gradients.dmask.data = c.gradients.dq.data; }},
    {"backward_dropout_2", kDense, kBackward, "dropout_p", kValue, [](TestCall& c) { c.options.dropout_p = 2; }},
    {"backward_cu_seqlens_q_last", kPacked, kBackward, "cu_seqlens_q", kValue, [](TestCall& c) { set_value(c.inputs.cu_seqlens_q, 2, 9); }},
    {"backward_packed_dk_tokens", kPacked, kBackward, "dk", kValue, [](TestCall& c) { c.gradients.dk.shape[0] = 10; }},
    // clang-format on
};

class BadInputs : public testing::TestWithParam<BadInput> {};

void expect_refusal(const Status& status, const char* argument, ErrorKind kind) {
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.argument(), argument) << status.message();
  EXPECT_EQ(status.kind(), kind) << status.message();
  EXPECT_FALSE(status.expected().empty());
  EXPECT_FALSE(status.got().empty());
  EXPECT_EQ(status.message(),
            std::string(argument) + ": expected " + status.expected() + ", got " + status.got());
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
}

TEST_P(BadInputs, are_refused_by_name_before_anything_is_written) {
  const BadInput& bad = GetParam();
  TestCall call(base_case(bad.base));
  bad.spoil(call);
  call.own_workspace = true;  // none: faults of arguments come first
  const bool forward = bad.direction == kForward;
  expect_refusal(forward ? call.run_forward() : call.run_backward(), bad.argument, bad.kind);
  // Sizes and texts depend on less, and may be fine; they refuse with the same words or not at all.
  size_t bytes = 0;
  const Status size =
      forward ? forward_workspace_bytes(call.inputs, call.options, &bytes)
              : backward_workspace_bytes(call.inputs, call.options, call.gradients, &bytes);
  std::string text;
  for (const Status& status : {size, explain(call.inputs, call.options, &text)}) {
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
  EXPECT_TRUE(call.outputs_untouched());
  EXPECT_TRUE(call.gradients_untouched());
}

INSTANTIATE_TEST_SUITE_P(All, BadInputs, testing::ValuesIn(kRows),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(BadInputTable, has_at_least_100_rows) { EXPECT_GE(std::size(kRows), 100u); }

// The base cases themselves are good.
TEST(BadInputTable, base_cases_run) {
  for (const Base base : {kPlain, kDense, kPacked}) TestCall(base_case(base)).run();
}

TEST(BadCalls, stream_for_cpu_tensors) {
  TestCall call(base_case(kPlain));
  int stream = 0;
  expect_refusal(call.run_forward(&stream), "stream", kValue);
  expect_refusal(call.run_backward(&stream), "stream", kValue);
  EXPECT_TRUE(call.outputs_untouched() && call.gradients_untouched());
}

TEST(BadCalls, workspace_too_small_or_misaligned) {
  for (const Direction direction : {kForward, kBackward}) {
    TestCall call(base_case(kDense));
    size_t bytes = 0;
    const Status size =
        direction == kForward
            ? forward_workspace_bytes(call.inputs, call.options, &bytes)
            : backward_workspace_bytes(call.inputs, call.options, call.gradients, &bytes);
    ASSERT_TRUE(size.ok()) << size.message();
    if (bytes == 0) continue;  // nothing can be too small
    const Buffer buffer(bytes + 256);
    call.own_workspace = true;
    for (const Workspace& bad : {Workspace{}, Workspace{buffer.data(), bytes - 1},
                                 Workspace{buffer.data() + 16, bytes}, Workspace{nullptr, bytes}}) {
      call.workspace = bad;
      expect_refusal(direction == kForward ? call.run_forward() : call.run_backward(), "workspace",
                     kValue);
    }
    EXPECT_TRUE(call.outputs_untouched() && call.gradients_untouched());
  }
}

// Devices that this build or this machine has no kernels for.
TEST(BadCalls, cuda_tensors_without_a_kernel) {
  TestCall call(base_case(kPlain));
  AttentionInputs& in = call.inputs;
  for (Tensor* t : {&in.q, &in.k, &in.v, &call.outputs.out, &call.outputs.lse}) {
    t->device = DeviceType::kCuda;
    t->device_index = 12345;
  }
  const Status status = call.run_forward();
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(status.kind() == ErrorKind::kUnsupported || status.kind() == ErrorKind::kRuntime)
      << status.message();
  EXPECT_FALSE(status.message().empty());
  EXPECT_TRUE(call.outputs_untouched());
}

TEST(BadCalls, workspace_in_the_memory_of_a_tensor) {
  TestCall call(base_case(kPlain));
  call.own_workspace = true;
  for (const Tensor* t : {&call.inputs.q, &call.inputs.v, &call.outputs.out, &call.outputs.lse}) {
    call.workspace = {t->data, size_t{1} << 20};
    expect_refusal(call.run_forward(), "workspace", kValue);
  }
  EXPECT_TRUE(call.outputs_untouched());
}

TEST(BadCalls, no_place_for_a_result) {
  const TestCall call(base_case(kPlain));
  expect_refusal(forward_workspace_bytes(call.inputs, call.options, nullptr), "bytes", kValue);
  expect_refusal(backward_workspace_bytes(call.inputs, call.options, call.gradients, nullptr),
                 "bytes", kValue);
  expect_refusal(explain(call.inputs, call.options, nullptr), "text", kValue);
}

}  // namespace
}  // namespace ffpa::test
