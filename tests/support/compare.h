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

struct Expected {
  reference::Result exact, math;
};
Expected expected_of(const reference::Call& call, DType dtype);

// inf and NaN stand where `exact` has them; then the largest error and the root mean square error
// are at most twice those of `math`, plus one rounding of the largest value to `dtype`. In float32
// the reference has no more precision to lose than the kernel, and the largest of few such errors
// is a matter of luck: there it may be four times as large, and the values that a result is made
// of (score, lse, P and the product) may each be rounded once.
testing::AssertionResult close_to(const char* name, const reference::Array& got,
                                  const reference::Array& exact, const reference::Array& math,
                                  DType dtype);
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
