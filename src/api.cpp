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

Status launch(const Problem& p, Pass pass, Workspace workspace, void* stream) {
  if (p.device == DeviceType::kCpu && stream) {
    return Status::invalid_value("stream", "null for CPU tensors", "a stream");
  }
  const KernelRow* row = nullptr;
  FFPA_RETURN_IF_ERROR(plan(p, pass, &row));
  FFPA_RETURN_IF_ERROR(check_workspace(workspace, row->workspace_bytes(p)));
  return row->launch(p, workspace, stream);
}

Status explain_pass(const Problem& p, Pass pass, std::string* text) {
  const KernelRow* row = nullptr;
  const Status status = plan(p, pass, &row);
  *text += pass == Pass::kForward ? "forward:  " : "backward: ";
  if (status.ok()) {
    *text += std::string(row->name) + ": " + row->describe(p) + ", workspace " +
             std::to_string(row->workspace_bytes(p)) + " bytes\n";
    return {};
  }
  if (status.kind() != ErrorKind::kUnsupported) return status;
  *text += "none: " + status.message() + "\n";
  return {};
}

}  // namespace

Status forward(const AttentionInputs& inputs, const AttentionOptions& options,
               const ForwardOutputs& outputs, Workspace workspace, void* stream) {
  Problem p;
  FFPA_RETURN_IF_ERROR(check_forward(inputs, options, outputs, &p));
  return launch(p, Pass::kForward, workspace, stream);
}

Status backward(const AttentionInputs& inputs, const AttentionOptions& options,
                const BackwardInputs& saved, const BackwardOutputs& gradients, Workspace workspace,
                void* stream) {
  Problem p;
  FFPA_RETURN_IF_ERROR(check_backward(inputs, options, saved, gradients, &p));
  return launch(p, Pass::kBackward, workspace, stream);
}

Status forward_workspace_bytes(const AttentionInputs& inputs, const AttentionOptions& options,
                               size_t* bytes) {
  Problem p;
  FFPA_RETURN_IF_ERROR(check_inputs(inputs, options, &p));
  const KernelRow* row = nullptr;
  FFPA_RETURN_IF_ERROR(plan(p, Pass::kForward, &row));
  *bytes = row->workspace_bytes(p);
  return {};
}

Status backward_workspace_bytes(const AttentionInputs& inputs, const AttentionOptions& options,
                                const BackwardOutputs& gradients, size_t* bytes) {
  Problem p;
  FFPA_RETURN_IF_ERROR(check_backward_plan(inputs, options, gradients, &p));
  const KernelRow* row = nullptr;
  FFPA_RETURN_IF_ERROR(plan(p, Pass::kBackward, &row));
  *bytes = row->workspace_bytes(p);
  return {};
}

Status explain(const AttentionInputs& inputs, const AttentionOptions& options, std::string* text) {
  Problem p;
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
