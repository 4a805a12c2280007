// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <string>
#include <utility>

namespace ffpa {

// What kind of fault a call met. The Python package raises one exception type per kind.
enum class ErrorKind {
  kOk,
  kInvalidValue,  // a shape, stride, value or device that no backend accepts (Python: ValueError)
  kInvalidType,   // a dtype or a kind of object that no backend accepts (Python: TypeError)
  kUnsupported,   // valid, but no kernel of this build serves it (Python: NotImplementedError)
  kRuntime,       // the device or its driver failed (Python: RuntimeError)
};

// The result of every library call. Success carries no text. A fault names the argument, what was
// expected and what came, in one line: "cu_seqlens_q: expected dtype int32, got int64".
class [[nodiscard]] Status {
 public:
  Status() = default;

  static Status invalid_value(std::string argument, std::string expected, std::string got) {
    return {ErrorKind::kInvalidValue, std::move(argument), std::move(expected), std::move(got)};
  }
  static Status invalid_type(std::string argument, std::string expected, std::string got) {
    return {ErrorKind::kInvalidType, std::move(argument), std::move(expected), std::move(got)};
  }
  static Status unsupported(std::string argument, std::string expected, std::string got) {
    return {ErrorKind::kUnsupported, std::move(argument), std::move(expected), std::move(got)};
  }
  static Status runtime(std::string what) {
    Status status;
    status.kind_ = ErrorKind::kRuntime;
    status.got_ = std::move(what);
    return status;
  }

  bool ok() const { return kind_ == ErrorKind::kOk; }
  ErrorKind kind() const { return kind_; }
  const std::string& argument() const { return argument_; }
  const std::string& expected() const { return expected_; }
  const std::string& got() const { return got_; }

  // One line; empty on success.
  std::string message() const {
    if (ok()) return "";
    if (kind_ == ErrorKind::kRuntime) return got_;
    return argument_ + ": expected " + expected_ + ", got " + got_;
  }

 private:
  Status(ErrorKind kind, std::string argument, std::string expected, std::string got)
      : kind_(kind),
        argument_(std::move(argument)),
        expected_(std::move(expected)),
        got_(std::move(got)) {}

  ErrorKind kind_ = ErrorKind::kOk;
  std::string argument_, expected_, got_;
};

}  // namespace ffpa

// Returns from the calling function with the status of `call` unless it is ok.
#define FFPA_RETURN_IF_ERROR(call)                                                     \
  do {                                                                                 \
    if (::ffpa::Status ffpa_status_ = (call); !ffpa_status_.ok()) return ffpa_status_; \
  } while (false)
