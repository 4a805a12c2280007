// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Do two strided tensors share a byte? Slices of one buffer interleave without sharing any (dq, dk
// and dv inside one fused gradient), so comparing address ranges is not enough.
#include <algorithm>
#include <vector>

#include "core/check.h"

namespace ffpa {
namespace {

// stride * n for n in [lo, hi]: what the indices of one dimension add to the distance a - b.
struct Term {
  int64_t stride, lo, hi;
};

struct Search {
  std::vector<Term> terms;           // by falling stride
  std::vector<int64_t> least, most;  // of the sum of the terms from here on
  int64_t budget = 100'000;

  // Can x plus the terms from `depth` on reach [lo, hi]?
  bool reaches(size_t depth, int64_t x, int64_t lo, int64_t hi) {
    if (depth == terms.size()) return lo <= x && x <= hi;
    if (--budget < 0) return true;
    const Term& t = terms[depth];
    // Outside these n, no choice of the later terms comes back into [lo, hi].
    const int64_t from = std::max(t.lo, ceil_divide(lo - x - most[depth + 1], t.stride));
    const int64_t to = std::min(t.hi, floor_divide(hi - x - least[depth + 1], t.stride));
    for (int64_t n = from; n <= to; ++n) {
      if (reaches(depth + 1, x + n * t.stride, lo, hi)) return true;
    }
    return false;
  }

  static int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b != 0 && a < 0); }
  static int64_t ceil_divide(int64_t a, int64_t b) { return -floor_divide(-a, b); }
};

void add_terms(const Tensor& t, int sign, std::vector<Term>* terms) {
  for (int i = 0; i < t.rank; ++i) {
    if (t.shape[i] <= 1 || t.stride[i] == 0) continue;
    const int64_t stride = t.stride[i] * dtype_bytes(t.dtype), last = t.shape[i] - 1;
    const int64_t lo = sign > 0 ? 0 : -last, hi = sign > 0 ? last : 0;
    const auto same = std::find_if(terms->begin(), terms->end(),
                                   [&](const Term& other) { return other.stride == stride; });
    if (same == terms->end()) {
      terms->push_back({stride, lo, hi});
    } else {
      same->lo += lo;
      same->hi += hi;
    }
  }
}

}  // namespace

bool tensors_overlap(const Tensor& a, const Tensor& b) {
  if (a.numel() == 0 || b.numel() == 0) return false;
  Search search;
  add_terms(a, +1, &search.terms);
  add_terms(b, -1, &search.terms);
  std::sort(search.terms.begin(), search.terms.end(),
            [](const Term& x, const Term& y) { return x.stride > y.stride; });
  const size_t n = search.terms.size();
  search.least.assign(n + 1, 0);
  search.most.assign(n + 1, 0);
  for (size_t i = n; i-- > 0;) {
    const Term& t = search.terms[i];
    search.least[i] = search.least[i + 1] + t.stride * t.lo;
    search.most[i] = search.most[i + 1] + t.stride * t.hi;
  }
  const int64_t distance = static_cast<int64_t>(reinterpret_cast<uintptr_t>(a.data) -
                                                reinterpret_cast<uintptr_t>(b.data));
  // Elements at a distance d = a - b share a byte iff -bytes(a) < d < bytes(b).
  return search.reaches(0, distance, 1 - dtype_bytes(a.dtype), dtype_bytes(b.dtype) - 1);
}

}  // namespace ffpa
