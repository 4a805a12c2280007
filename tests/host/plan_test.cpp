// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "plan/plan.h"

#include <gtest/gtest.h>

#include <functional>

#include "core/check.h"
#include "support/test_call.h"

namespace ffpa {
namespace {

using test::Case;
using test::TestCall;

Problem problem_of(const Case& c, Pass pass = Pass::kBackward) {
  TestCall call(c);
  Problem p;
  const Status status =
      pass == Pass::kForward
          ? check_forward(call.inputs, call.options, call.outputs, {}, &p)
          : check_backward(call.inputs, call.options, call.saved, call.gradients, {}, &p);
  EXPECT_TRUE(status.ok()) << status.message();
  return p;  // its pointers dangle: plans read none of them
}

KernelRow cpu_row(Pass pass) {
  for (const KernelRow& row : kernel_table()) {
    if (row.backend == Backend::kCpu && row.pass == pass) return row;
  }
  ADD_FAILURE() << "no CPU kernel in the table";
  return {};
}

struct FeatureCase {
  Feature feature;
  std::function<void(Case*)> set;
};

const FeatureCase kFeatureCases[] = {
    {kCausal, [](Case* c) { c->options.causal = true; }},
    {kCausal, [](Case* c) { c->options.window_right = 0; }},
    {kWindow, [](Case* c) { c->options.window_left = 0; }},
    {kWindow, [](Case* c) { c->options.window_left = 4, c->options.causal = true; }},
    {kWindow, [](Case* c) { c->options.window_right = 4; }},
    {kSoftcap, [](Case* c) { c->options.softcap = 30; }},
    {kSink, [](Case* c) { c->sink = true; }},
    {kMask, [](Case* c) { c->mask = test::Mask::kBool; }},
    {kMask, [](Case* c) { c->mask = test::Mask::kFloat32, c->no_dmask = true; }},
    {kMaskGradient, [](Case* c) { c->mask = test::Mask::kFloat32; }},
    {kAlibi, [](Case* c) { c->alibi_rank = 1; }},
    {kDropout, [](Case* c) { c->options.dropout_p = 0.1; }},
    {kSeqused, [](Case* c) { c->used_q = {3, 5}; }},
    {kSeqused, [](Case* c) { c->used_k = {3, 5}; }},
    {kPacked, [](Case* c) { c->packed = true; }},
    {kLseGradient, [](Case* c) { c->dlse = true; }},
    {kDvSmaller, [](Case* c) { c->head_dim_v = 8; }},
    {kDvLarger, [](Case* c) { c->head_dim_v = 24; }},
    {kNonPositiveScale, [](Case* c) { c->options.softmax_scale = 0.0; }},
    {kNonPositiveScale, [](Case* c) { c->options.softmax_scale = -1.0; }},
};

Case plain_case() {
  Case c;
  c.lengths_q = {5, 5};
  c.heads_q = 4;
  c.heads_kv = 2;
  c.head_dim = 16;
  return c;
}

TEST(Plan, features_of_each_option) {
  EXPECT_EQ(features_of(problem_of(plain_case()), Pass::kBackward), 0u);
  for (const FeatureCase& f : kFeatureCases) {
    Case c = plain_case();
    f.set(&c);
    const uint32_t implied = f.feature == kMaskGradient ? uint32_t{kMask} : 0;
    const Problem p = problem_of(c);
    EXPECT_EQ(features_of(p, Pass::kBackward), f.feature | implied) << describe(c);
    const bool backward_only = f.feature == kMaskGradient || f.feature == kLseGradient;
    EXPECT_EQ(features_of(p, Pass::kForward), backward_only ? implied : uint32_t{f.feature})
        << describe(c);
  }
}

// An unbounded window, however it is written, is no window.
TEST(Plan, windows_that_hide_nothing) {
  Case c = plain_case();
  c.options.window_left = int64_t{1} << 40;
  c.options.window_right = kUnbounded;
  EXPECT_EQ(features_of(problem_of(c), Pass::kForward), 0u);
}

TEST(Plan, a_row_refuses_each_feature_that_it_lacks) {
  KernelRow row = cpu_row(Pass::kBackward);
  for (const FeatureCase& f : kFeatureCases) {
    Case c = plain_case();
    f.set(&c);
    const Problem p = problem_of(c);
    row.features = kAllFeatures;
    EXPECT_EQ(refusal(row, p, Pass::kBackward, 0), "") << describe(c);
    row.features = kAllFeatures & ~f.feature;
    EXPECT_NE(refusal(row, p, Pass::kBackward, 0), "") << describe(c);
  }
}

TEST(Plan, a_row_refuses_what_is_not_its_own) {
  const Problem p = problem_of(plain_case(), Pass::kForward);
  const auto reason = [&](const std::function<void(KernelRow*, Problem*)>& change, int sm = 0) {
    KernelRow row = cpu_row(Pass::kForward);
    Problem changed = p;
    change(&row, &changed);
    return refusal(row, changed, Pass::kForward, sm);
  };
  EXPECT_EQ(reason([](KernelRow*, Problem*) {}), "");
  EXPECT_NE(reason([](KernelRow* r, Problem*) { r->pass = Pass::kBackward; }), "");
  EXPECT_NE(reason([](KernelRow* r, Problem*) { r->device = DeviceType::kCuda; }), "");
  EXPECT_NE(reason([](KernelRow*, Problem* q) { q->backend = Backend::kSm90; }), "");
  EXPECT_EQ(reason([](KernelRow*, Problem* q) { q->backend = Backend::kCpu; }), "");
  EXPECT_NE(reason([](KernelRow*, Problem*) {}, 90).find("9.0"), std::string::npos);
  EXPECT_NE(reason([](KernelRow* r, Problem*) { r->dtypes = 0; }).find("float32"),
            std::string::npos);
  EXPECT_NE(reason([](KernelRow* r, Problem*) { r->max_head_dim = 8; }).find("head_dim 16"),
            std::string::npos);
  EXPECT_NE(reason([](KernelRow* r, Problem*) { r->min_head_dim = 32; }).find("head_dim 16"),
            std::string::npos);
  EXPECT_NE(reason([](KernelRow* r, Problem*) { r->head_dim_step = 64; }).find("head_dim 16"),
            std::string::npos);
  EXPECT_NE(reason([](KernelRow*, Problem* q) { q->head_dim_v = 20; }).find("head_dim 20"),
            std::string::npos);
}

TEST(Plan, cpu_serves_every_feature_and_dtype) {
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      Case c = plain_case();
      c.dtype = dtype;
      for (const FeatureCase& f : kFeatureCases) f.set(&c);
      const KernelRow* row = nullptr;
      const Status status = select_kernel(problem_of(c, pass), pass, 0, &row);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(row->backend, Backend::kCpu);
      EXPECT_EQ(row->pass, pass);
    }
  }
}

TEST(Plan, a_call_without_a_kernel_names_the_rows_and_their_reasons) {
  Problem p = problem_of(plain_case(), Pass::kForward);
  p.head_dim_qk = 4096;
  const KernelRow* row = nullptr;
  const Status status = select_kernel(p, Pass::kForward, 0, &row);
  EXPECT_EQ(status.kind(), ErrorKind::kUnsupported);
  EXPECT_NE(status.message().find("cpu_forward"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("head_dim 4096"), std::string::npos) << status.message();
  EXPECT_EQ(status.message().find("cpu_backward"), std::string::npos) << status.message();
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
}

TEST(Plan, table_rows_are_complete) {
  for (const KernelRow& row : kernel_table()) {
    SCOPED_TRACE(row.name);
    EXPECT_TRUE(row.workspace_bytes && row.launch && row.describe);
    EXPECT_LE(row.min_sm, row.max_sm);
    EXPECT_LE(row.min_head_dim, row.max_head_dim);
    EXPECT_GT(row.head_dim_step, 0);
    EXPECT_NE(row.dtypes, 0u);
    EXPECT_EQ(row.device == DeviceType::kCpu, row.backend == Backend::kCpu);
    EXPECT_EQ(row.features & ~kAllFeatures, 0u);
  }
}

TEST(Plan, explain_names_both_kernels_and_needs_no_data) {
  TestCall call(plain_case());
  for (Tensor* t : {&call.inputs.q, &call.inputs.k, &call.inputs.v}) t->data = nullptr;
  std::string text = "old";
  const Status status = explain(call.inputs, call.options, &text);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_NE(text.find("forward:  cpu_forward"), std::string::npos) << text;
  EXPECT_NE(text.find("backward: cpu_backward"), std::string::npos) << text;
  EXPECT_NE(text.find("workspace"), std::string::npos) << text;
  EXPECT_EQ(text.find("old"), std::string::npos);
}

TEST(Plan, workspace_sizes_are_pure_functions_of_shapes) {
  Case c = plain_case();
  c.packed = true;
  TestCall call(c), other(c);
  static_cast<int32_t*>(other.inputs.cu_seqlens_q.data)[1] = 3;  // values do not matter
  for (Tensor* t : {&other.inputs.q, &other.inputs.k, &other.inputs.v}) t->data = nullptr;
  size_t a = 1, b = 2;
  EXPECT_TRUE(forward_workspace_bytes(call.inputs, call.options, &a).ok());
  EXPECT_TRUE(forward_workspace_bytes(other.inputs, other.options, &b).ok());
  EXPECT_EQ(a, b);
  a = 1, b = 2;
  EXPECT_TRUE(backward_workspace_bytes(call.inputs, call.options, call.gradients, &a).ok());
  EXPECT_TRUE(backward_workspace_bytes(other.inputs, other.options, call.gradients, &b).ok());
  EXPECT_EQ(a, b);
}

}  // namespace
}  // namespace ffpa
