// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "support/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <future>
#include <map>

namespace ffpa::test {
namespace {

using reference::Array;
using reference::Result;

struct Named {
  const char* name;
  Array Result::* member;
};
constexpr Named kResults[] = {
    {"out", &Result::out}, {"lse", &Result::lse},     {"dq", &Result::dq},      {"dk", &Result::dk},
    {"dv", &Result::dv},   {"dsink", &Result::dsink}, {"dmask", &Result::dmask}};

testing::AssertionResult same_special_values(const char* name, const Array& got,
                                             const Array& exact) {
  if (got.shape != exact.shape) return testing::AssertionFailure() << name << ": shapes differ";
  const auto special = [](double x) {
    return std::isnan(x) ? 2 : std::isinf(x) ? (x > 0) - (x < 0) : 0;
  };
  int64_t count = 0, first = -1;
  for (int64_t i = 0; i < got.numel(); ++i) {
    const bool differ = std::isfinite(got.data[i]) != std::isfinite(exact.data[i]) ||
                        special(got.data[i]) != special(exact.data[i]);
    if (differ && count++ == 0) first = i;
  }
  if (count == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure() << name << got.index_text(first) << " is " << got.data[first]
                                     << ", want " << exact.data[first] << " (" << count << " of "
                                     << got.numel() << " elements differ in being finite)";
}

struct Error {
  double largest = 0, rms = 0;
  int64_t at = 0;
};

Error error_of(const Array& got, const Array& exact) {
  Error e;
  for (int64_t i = 0; i < got.numel(); ++i) {
    if (!std::isfinite(exact.data[i])) continue;
    const double d = std::abs(got.data[i] - exact.data[i]);
    if (d > e.largest) e.largest = d, e.at = i;
    e.rms += d * d;
  }
  if (got.numel() > 0) e.rms = std::sqrt(e.rms / static_cast<double>(got.numel()));
  return e;
}

double largest(const Array& a) {
  double most = 0;
  for (double x : a.data) {
    if (std::isfinite(x)) most = std::max(most, std::abs(x));
  }
  return most;
}

}  // namespace

testing::AssertionResult close_to(const char* name, const Array& got, const Array& exact,
                                  const Array& math, DType dtype) {
  if (auto special = same_special_values(name, got, exact); !special) return special;
  const Error error = error_of(got, exact), allowed = error_of(math, exact);
  if (!std::isfinite(allowed.rms)) {
    return testing::AssertionFailure() << name << ": the math attention overflows "
                                       << dtype_name(dtype) << ": no tolerance, change the case";
  }
  const bool float32 = dtype == DType::kFloat32;
  const double rounding = reference::unit_roundoff(dtype) * largest(exact) * (float32 ? 4 : 1);
  const double most = (float32 ? 4 : 2) * allowed.largest + rounding;
  const double rms = 2 * allowed.rms + rounding;
  if (error.largest <= most && error.rms <= rms) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << name << got.index_text(error.at) << " is " << got.data[error.at] << ", want "
         << exact.data[error.at] << ": largest error " << error.largest << " (rms " << error.rms
         << "), allowed " << most << " (rms " << rms << "); a math attention in "
         << dtype_name(dtype) << " has " << allowed.largest << " (rms " << allowed.rms << ")";
}

testing::AssertionResult lse_close_to(const Array& got, const Array& exact) {
  if (auto special = same_special_values("lse", got, exact); !special) return special;
  for (int64_t i = 0; i < got.numel(); ++i) {
    const double error = std::abs(got.data[i] - exact.data[i]);
    if (error > std::max(2e-4, 1e-6 * std::abs(exact.data[i]))) {
      return testing::AssertionFailure() << "lse" << got.index_text(i) << " is " << got.data[i]
                                         << ", want " << exact.data[i] << ": error " << error;
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult all_zero(const char* name, const Array& a) {
  for (int64_t i = 0; i < a.numel(); ++i) {
    if (a.data[i] != 0) {
      return testing::AssertionFailure()
             << name << a.index_text(i) << " is " << a.data[i] << ", want exactly 0";
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult same_bits(const char* name, const Array& a, const Array& b) {
  if (a.shape != b.shape) return testing::AssertionFailure() << name << ": shapes differ";
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double x = a.data[i], y = b.data[i];
    if (std::bit_cast<uint64_t>(x) != std::bit_cast<uint64_t>(y) &&
        !(std::isnan(x) && std::isnan(y))) {
      return testing::AssertionFailure() << name << a.index_text(i) << " differs: " << x << " and "
                                         << y << " (difference " << x - y << ")";
    }
  }
  return testing::AssertionSuccess();
}

void expect_same_bits(const Result& a, const Result& b) {
  for (const Named& r : kResults) {
    if ((a.*r.member).defined() && (b.*r.member).defined()) {
      EXPECT_TRUE(same_bits(r.name, a.*r.member, b.*r.member));
    }
  }
}

Expected expected_of(const reference::Call& call, DType dtype) {
  std::future<Result> math =
      std::async(std::launch::async, [&] { return reference::math_attention(call, dtype); });
  Expected e;
  e.exact = reference::attention(call);
  e.math = math.get();
  return e;
}

void expect_close(const Result& got, const Expected& expected, DType dtype) {
  for (const Named& r : kResults) {
    const Array& g = got.*r.member;
    if (!g.defined()) continue;
    if (r.member == &Result::lse) {
      EXPECT_TRUE(lse_close_to(g, expected.exact.lse));
    } else {
      EXPECT_TRUE(close_to(r.name, g, expected.exact.*r.member, expected.math.*r.member, dtype));
    }
  }
}

namespace {

// Elements of one head: the second dimension of all row arrays.
std::map<int64_t, std::vector<int64_t>> by_head(const Array& a) {
  std::map<int64_t, std::vector<int64_t>> heads;
  const int64_t inner = a.shape.size() == 4 ? a.shape[2] * a.shape[3] : a.shape[2];
  for (int64_t i = 0; i < a.numel(); ++i) heads[i / inner % a.shape[1]].push_back(i);
  return heads;
}

void expect_heads(const char* name, const Array& got, const Array& exact, double min_cosine,
                  double max_relative_l2) {
  for (const auto& [head, elements] : by_head(got)) {
    double dot = 0, got2 = 0, exact2 = 0, error2 = 0;
    for (int64_t i : elements) {
      const double x = got.data[i], y = exact.data[i];
      dot += x * y, got2 += x * x, exact2 += y * y, error2 += (x - y) * (x - y);
    }
    if (exact2 == 0) {
      EXPECT_EQ(got2, 0) << name << " of head " << head;
      continue;
    }
    EXPECT_GT(dot / std::sqrt(got2 * exact2), min_cosine)
        << "cosine of " << name << ", head " << head;
    EXPECT_LT(std::sqrt(error2 / exact2), max_relative_l2)
        << "relative L2 error of " << name << ", head " << head;
  }
}

void expect_acceptance(const Result& got, const Result& exact, const Array& v) {
  EXPECT_LE(error_of(got.out, exact.out).largest, 0x1p-8 * largest(v)) << "out";
  expect_heads("out", got.out, exact.out, 0.99999, 1);
  expect_heads("dq", got.dq, exact.dq, 0.999, 1e-2);
  expect_heads("dk", got.dk, exact.dk, 0.999, 1e-2);
  expect_heads("dv", got.dv, exact.dv, 0.999, 1e-2);
}

Result check_call(TestCall& call, bool acceptance) {
  SCOPED_TRACE(describe(call.test_case));
  const DType dtype = call.test_case.dtype;
  const Result got = call.run();
  const reference::Call described = call.reference_call();
  const Expected expected = expected_of(described, dtype);
  expect_close(got, expected, dtype);
  if (acceptance) expect_acceptance(got, expected.exact, described.v);
  return got;
}

}  // namespace

Result check(TestCall& call) { return check_call(call, false); }
Result check_acceptance(TestCall& call) { return check_call(call, true); }

void check(const Case& c) {
  TestCall call(c);
  check(call);
}
void check_acceptance(const Case& c) {
  TestCall call(c);
  check_acceptance(call);
}

}  // namespace ffpa::test
