// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The public calls: check, plan, launch.
#include "core/check.h"
#include "ffpa/attention.h"
#include "plan/device.h"
#include "plan/plan.h"

namespace ffpa {
namespace {

constexpr size_t kWorkspaceAlignment = 256;

Status plan(const Problem& p, Pass pass, const KernelRow** row) {
  int sm = 0;
  FFPA_RETURN_IF_ERROR(device_sm(p, &sm));
  return select_kernel(p, pass, sm, row);
}

Status check_result(const char* name, const void* result) {
  if (result) return {};
  return Status::invalid_value(name, "where the result goes", "null");
}

Status check_workspace(Workspace workspace, size_t needed) {
  if (workspace.bytes < needed || (needed > 0 && !workspace.data)) {
    return Status::invalid_value("workspace", "at least " + std::to_string(needed) + " bytes",
                                 workspace.data ? std::to_string(workspace.bytes) : "none");
  }
  if (needed > 0 && reinterpret_cast<uintptr_t>(workspace.data) % kWorkspaceAlignment != 0) {
    return Status::invalid_value("workspace", "an address that is a multiple of 256",
                                 "one that is not");
  }
  return {};
}

// The kernel of a pass, and the workspace that it needs.
Status plan(const Problem& p, Pass pass, const KernelRow** row, size_t* bytes) {
  FFPA_RETURN_IF_ERROR(plan(p, pass, row));
  *bytes = (*row)->workspace_bytes(p);
  if (p.workspace_limit >= 0 && *bytes > static_cast<size_t>(p.workspace_limit)) {
    return Status::invalid_value(
        "workspace_limit",
        "at least the " + std::to_string(*bytes) + " bytes that " + (*row)->name + " needs",
        std::to_string(p.workspace_limit));
  }
  return {};
}

Status launch(const Problem& p, Pass pass, Workspace workspace, void* stream) {
  if (p.device == DeviceType::kCpu && stream) {
    return Status::invalid_value("stream", "null for CPU tensors", "a stream");
  }
  const KernelRow* row = nullptr;
  size_t bytes = 0;
  FFPA_RETURN_IF_ERROR(plan(p, pass, &row, &bytes));
  FFPA_RETURN_IF_ERROR(check_workspace(workspace, bytes));
  return row->launch(p, workspace, stream);
}

Status explain_pass(const Problem& p, Pass pass, std::string* text) {
  const KernelRow* row = nullptr;
  size_t bytes = 0;
  const Status status = plan(p, pass, &row, &bytes);
  *text += pass == Pass::kForward ? "forward:  " : "backward: ";
  if (status.ok()) {
    *text += std::string(row->name) + ": " + row->describe(p) + ", workspace " +
             std::to_string(bytes) + " bytes\n";
    return {};
  }
  // One pass may be possible where the other is not.
  const bool of_this_pass =
      status.kind() == ErrorKind::kUnsupported || status.argument() == "workspace_limit";
  if (!of_this_pass) return status;
  *text += "none: " + status.message() + "\n";
  return {};
}

}  // namespace

Status forward(const AttentionInputs& inputs, const AttentionOptions& options,
               const ForwardOutputs& outputs, Workspace workspace, void* stream) {
  Problem p;
  FFPA_RETURN_IF_ERROR(check_forward(inputs, options, outputs, workspace, &p));
  return launch(p, Pass::kForward, workspace, stream);
}

Status backward(const AttentionInputs& inputs, const AttentionOptions& options,
                const BackwardInputs& saved, const BackwardOutputs& gradients, Workspace workspace,
                void* stream) {
  Problem p;
  FFPA_RETURN_IF_ERROR(check_backward(inputs, options, saved, gradients, workspace, &p));
  return launch(p, Pass::kBackward, workspace, stream);
}

Status forward_workspace_bytes(const AttentionInputs& inputs, const AttentionOptions& options,
                               size_t* bytes) {
  Problem p;
  FFPA_RETURN_IF_ERROR(check_result("bytes", bytes));
  FFPA_RETURN_IF_ERROR(check_inputs(inputs, options, &p));
  const KernelRow* row = nullptr;
  return plan(p, Pass::kForward, &row, bytes);
}

Status backward_workspace_bytes(const AttentionInputs& inputs, const AttentionOptions& options,
                                const BackwardOutputs& gradients, size_t* bytes) {
  Problem p;
  FFPA_RETURN_IF_ERROR(check_result("bytes", bytes));
  FFPA_RETURN_IF_ERROR(check_backward_plan(inputs, options, gradients, &p));
  const KernelRow* row = nullptr;
  return plan(p, Pass::kBackward, &row, bytes);
}

Status explain(const AttentionInputs& inputs, const AttentionOptions& options, std::string* text) {
  Problem p;
  FFPA_RETURN_IF_ERROR(check_result("text", text));
  FFPA_RETURN_IF_ERROR(check_inputs(inputs, options, &p));
  text->clear();
  FFPA_RETURN_IF_ERROR(explain_pass(p, Pass::kForward, text));
  // All three gradients, for the workspace.
  p.dq.given = p.dk.given = p.dv.given = true;
  return explain_pass(p, Pass::kBackward, text);
}

std::string kernel_list() {
  std::string text;
  for (const KernelRow& row : kernel_table()) text += describe(row) + "\n";
  return text;
}

}  // namespace ffpa
