// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Results against the oracle. Tolerances come from the error of the low-precision reference.
#pragma once

#include <gtest/gtest.h>

#include "reference/attention.h"
#include "support/case.h"
#include "support/test_call.h"

namespace ffpa::test {

// inf and NaN stand where `exact` has them; then the largest error and the root mean square error
// are at most twice those of `math`, plus one rounding of the largest value to `dtype`, plus one
// float32 rounding of every term (the sensitivity).
struct Expected {
  reference::Result exact, math, sensitivity;
};
Expected expected_of(const reference::Call& call, DType dtype);
testing::AssertionResult close_to(const char* name, const reference::Array& got,
                                  const reference::Array& exact, const reference::Array& math,
                                  const reference::Array& sensitivity, DType dtype);
// |got - exact| <= max(2e-4, 1e-6 |exact|); -inf stands where `exact` has it.
testing::AssertionResult lse_close_to(const reference::Array& got, const reference::Array& exact);
testing::AssertionResult all_zero(const char* name, const reference::Array& a);
// Same bits; NaN equals NaN.
testing::AssertionResult same_bits(const char* name, const reference::Array& a,
                                   const reference::Array& b);

// Every result that is defined in both.
void expect_same_bits(const reference::Result& a, const reference::Result& b);
void expect_close(const reference::Result& got, const Expected& expected, DType dtype);

// Runs the case forward and backward, and compares everything with the oracle.
void check(const Case& c);
// As `check`, and the bounds of acceptance: out within 2^-8 max|V| and cosine > 0.99999; gradients
// per head with cosine > 0.999 and a relative L2 error < 1e-2.
void check_acceptance(const Case& c);
// The same for a call whose inputs were changed by hand; returns what it computed.
reference::Result check(TestCall& call);
reference::Result check_acceptance(TestCall& call);

}  // namespace ffpa::test
