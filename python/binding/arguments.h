// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Reads the positional arguments of a call from Python. This order is the contract with
// ffpa_attn/_library.py: inputs, options, then what each function adds.
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

#include <cstdint>
#include <string>

#include "ffpa/ffpa.h"

namespace ffpa::python {

// Takes one argument after the other; `name` is for messages.
class Arguments {
 public:
  Arguments(const TVMFFIAny* args, int32_t count) : args_(args), count_(count) {}

  Tensor tensor(const char* name);  // None: an undefined tensor
  int64_t integer(const char* name);
  double number(const char* name);
  bool boolean(const char* name);

  AttentionInputs inputs();     // 12 arguments
  AttentionOptions options();   // 12 arguments
  BackwardOutputs gradients();  // 5 arguments
  Workspace workspace();        // uint8 [bytes], any alignment: 255 bytes more than needed
  void* stream();               // an integer, 0 on the CPU
  void done();                  // no argument may be left

  // Throws what becomes a Python exception; does nothing if `status` is ok.
  void raise_unless_ok(const Status& status) const;

 private:
  tvm::ffi::AnyView next(const char* name);

  const TVMFFIAny* args_;
  int32_t count_;
  int32_t at_ = 0;
  // The first argument of a dtype that the library has no name for, and that name.
  std::string unknown_name_, unknown_dtype_;
};

}  // namespace ffpa::python
