// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// What Python calls. Nothing is allocated here: outputs and workspace come from the caller.
#include <tvm/ffi/string.h>

#include <string>

#include "arguments.h"
#include "plan/plan.h"

namespace ffpa::python {
namespace {

namespace ffi = tvm::ffi;

// 0 after a call that is done; the bytes of workspace that it needs if it was given too few.
int64_t done_or_bytes(const Arguments& args, const Status& status, const Status& bytes_status,
                      size_t bytes) {
  if (status.argument() != "workspace" || !bytes_status.ok()) args.raise_unless_ok(status);
  return static_cast<int64_t>(bytes);
}

int64_t run_forward(Arguments& args) {
  const AttentionInputs inputs = args.inputs();
  const AttentionOptions options = args.options();
  ForwardOutputs outputs;
  outputs.out = args.tensor("out");
  outputs.lse = args.tensor("lse");
  const Workspace workspace = args.workspace();
  void* stream = args.stream();
  args.done();
  const Status status = forward(inputs, options, outputs, workspace, stream);
  if (status.ok()) return 0;
  size_t bytes = 0;
  const Status bytes_status = forward_workspace_bytes(inputs, options, &bytes);
  return done_or_bytes(args, status, bytes_status, bytes);
}

int64_t run_backward(Arguments& args) {
  const AttentionInputs inputs = args.inputs();
  const AttentionOptions options = args.options();
  BackwardInputs saved;
  saved.out = args.tensor("out");
  saved.lse = args.tensor("lse");
  saved.dout = args.tensor("dout");
  saved.dlse = args.tensor("dlse");
  const BackwardOutputs gradients = args.gradients();
  const Workspace workspace = args.workspace();
  void* stream = args.stream();
  args.done();
  const Status status = backward(inputs, options, saved, gradients, workspace, stream);
  if (status.ok()) return 0;
  size_t bytes = 0;
  const Status bytes_status = backward_workspace_bytes(inputs, options, gradients, &bytes);
  return done_or_bytes(args, status, bytes_status, bytes);
}

int64_t run_forward_workspace_bytes(Arguments& args) {
  const AttentionInputs inputs = args.inputs();
  const AttentionOptions options = args.options();
  args.done();
  size_t bytes = 0;
  args.raise_unless_ok(forward_workspace_bytes(inputs, options, &bytes));
  return static_cast<int64_t>(bytes);
}

int64_t run_backward_workspace_bytes(Arguments& args) {
  const AttentionInputs inputs = args.inputs();
  const AttentionOptions options = args.options();
  const BackwardOutputs gradients = args.gradients();
  args.done();
  size_t bytes = 0;
  args.raise_unless_ok(backward_workspace_bytes(inputs, options, gradients, &bytes));
  return static_cast<int64_t>(bytes);
}

ffi::String run_explain(Arguments& args) {
  const AttentionInputs inputs = args.inputs();
  const AttentionOptions options = args.options();
  args.done();
  std::string text;
  args.raise_unless_ok(explain(inputs, options, &text));
  return text;
}

// One line for each kernel of this build: name, backend, pass, head dims, compute capabilities.
ffi::String run_kernels(Arguments& args) {
  args.done();
  std::string text;
  for (const KernelRow& row : kernel_table()) {
    text += std::string(row.name) + ' ' + backend_name(row.backend) +
            (row.pass == Pass::kForward ? " forward " : " backward ") +
            std::to_string(row.min_head_dim) + ' ' + std::to_string(row.max_head_dim) + ' ' +
            std::to_string(row.head_dim_step) + ' ' + std::to_string(row.min_sm) + ' ' +
            std::to_string(row.max_sm) + '\n';
  }
  return text;
}

ffi::String run_version(Arguments& args) {
  args.done();
  return std::string(FFPA_VERSION);
}

}  // namespace
}  // namespace ffpa::python

// The C function that tvm-ffi looks up for `module.name(...)`.
#define FFPA_EXPORT(name, function)                                                               \
  extern "C" TVM_FFI_DLL_EXPORT int __tvm_ffi_##name(void*, const TVMFFIAny* args, int32_t count, \
                                                     TVMFFIAny* result) {                         \
    TVM_FFI_SAFE_CALL_BEGIN();                                                                    \
    ::ffpa::python::Arguments arguments(args, count);                                             \
    function(arguments, reinterpret_cast<::tvm::ffi::Any*>(result));                              \
    TVM_FFI_SAFE_CALL_END();                                                                      \
  }

namespace {

template <auto kFunction>
void call(ffpa::python::Arguments& arguments, tvm::ffi::Any* result) {
  *result = kFunction(arguments);
}

}  // namespace

FFPA_EXPORT(forward, call<ffpa::python::run_forward>)
FFPA_EXPORT(backward, call<ffpa::python::run_backward>)
FFPA_EXPORT(forward_workspace_bytes, call<ffpa::python::run_forward_workspace_bytes>)
FFPA_EXPORT(backward_workspace_bytes, call<ffpa::python::run_backward_workspace_bytes>)
FFPA_EXPORT(explain, call<ffpa::python::run_explain>)
FFPA_EXPORT(kernels, call<ffpa::python::run_kernels>)
FFPA_EXPORT(version, call<ffpa::python::run_version>)
