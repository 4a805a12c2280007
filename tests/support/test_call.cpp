// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "support/test_call.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace ffpa::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

int64_t sum(const std::vector<int32_t>& v) {
  return std::accumulate(v.begin(), v.end(), int64_t{0});
}
int64_t longest(const std::vector<int32_t>& v) {
  return v.empty() ? 0 : *std::max_element(v.begin(), v.end());
}

}  // namespace

TestCall::TestCall(const Case& c) : test_case(c), options(c.options), random_(c.seed) {
  make_sequences();
  make_rows();
  make_mask();
  make_options();
  make_gradients();
}

Tensor TestCall::new_tensor(std::deque<Block>* in, DType dtype, const Shape& shape,
                            const Arrangement& arrangement) {
  return in->emplace_back(dtype, shape, arrangement).tensor();
}

Arrangement TestCall::arrangement_of_rows() const {
  Arrangement a;
  switch (test_case.layout) {
    case Layout::kContiguous:
    case Layout::kExpanded:
      break;
    case Layout::kTransposed:
    case Layout::kFused:
      a.order = test_case.packed ? std::vector{1, 0, 2} : std::vector{0, 2, 1, 3};
      break;
    case Layout::kPadded:
      a.row_padding = 8;
      break;
    case Layout::kOffset:
      a.row_padding = 5;
      a.offset = 3;
      break;
  }
  return a;
}

TestCall::Shape TestCall::rows_shape(bool query, int64_t heads, int64_t columns) const {
  const auto& lengths = query ? test_case.lengths_q : test_case.k_lengths();
  if (test_case.packed) return {sum(lengths), heads, columns};
  return {test_case.batch(), heads, longest(lengths), columns};
}

bool TestCall::fuses() const {
  return test_case.layout == Layout::kFused && test_case.lengths_q == test_case.k_lengths() &&
         test_case.v_dim() == test_case.head_dim && !test_case.v_is_k;
}

// [.., tokens, heads_q + 2 heads_kv, head_dim] holds q, k and v.
void TestCall::fused_slices(std::deque<Block>* in, Tensor* q, Tensor* k, Tensor* v) {
  const Case& c = test_case;
  const int64_t heads = c.heads_q + 2 * c.heads_kv, row = heads * c.head_dim;
  const int64_t tokens = sum(c.lengths_q), size = dtype_bytes(c.dtype);
  Block& block = in->emplace_back(static_cast<size_t>(tokens * row * size));
  int64_t first = 0;
  for (Tensor* t : {q, k, v}) {
    const int64_t own = t == q ? c.heads_q : c.heads_kv;
    const Shape shape = rows_shape(true, own, c.head_dim);
    t->data = block.data() + first * c.head_dim * size;
    t->dtype = c.dtype;
    t->rank = static_cast<int32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), t->shape.begin());
    t->stride = c.packed ? std::array<int64_t, 4>{row, c.head_dim, 1, 0}
                         : std::array<int64_t, 4>{shape[2] * row, c.head_dim, row, 1};
    block.add_slice(*t);
    first += own;
  }
}

void TestCall::fill(const Tensor& t, double size) {
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < t.numel(); ++i) {
    reference::store(t.data, t.dtype, reference::element_offset(t, i), size * normal(random_));
  }
}

void TestCall::make_rows() {
  const Case& c = test_case;
  const Shape q_shape = rows_shape(true, c.heads_q, c.head_dim);
  const Shape k_shape = rows_shape(false, c.heads_kv, c.head_dim);
  const Shape v_shape = rows_shape(false, c.heads_kv, c.v_dim());
  if (fuses()) {
    fused_slices(&input_blocks_, &inputs.q, &inputs.k, &inputs.v);
    fused_slices(&gradient_blocks_, &gradients.dq, &gradients.dk, &gradients.dv);
  } else {
    Arrangement kv = arrangement_of_rows();
    if (c.layout == Layout::kExpanded) kv.expanded = {1};
    inputs.q = new_tensor(&input_blocks_, c.dtype, q_shape, arrangement_of_rows());
    inputs.k = new_tensor(&input_blocks_, c.dtype, k_shape, kv);
    inputs.v = c.v_is_k ? inputs.k : new_tensor(&input_blocks_, c.dtype, v_shape, kv);
    gradients.dq = new_tensor(&gradient_blocks_, c.dtype, q_shape, arrangement_of_rows());
    gradients.dk = new_tensor(&gradient_blocks_, c.dtype, k_shape, arrangement_of_rows());
    gradients.dv = new_tensor(&gradient_blocks_, c.dtype, v_shape, arrangement_of_rows());
  }
  fill(inputs.q, c.q_size);
  fill(inputs.k, c.k_size);
  if (!c.v_is_k) fill(inputs.v, c.v_size);
  for (int64_t i = 0; c.constant_v && i < inputs.v.numel(); ++i) {
    reference::store(inputs.v.data, c.dtype, reference::element_offset(inputs.v, i), 0.75);
  }
  poison_unused_rows(inputs.q, true);
  poison_unused_rows(inputs.k, false);
  poison_unused_rows(inputs.v, false);

  const Shape out_shape = rows_shape(true, c.heads_q, c.v_dim());
  outputs.out = new_tensor(&output_blocks_, c.dtype, out_shape, arrangement_of_rows());
  const Shape lse_shape =
      c.packed ? Shape{c.heads_q, out_shape[0]} : Shape{c.batch(), c.heads_q, out_shape[2]};
  outputs.lse = new_tensor(&output_blocks_, DType::kFloat32, lse_shape);
}

// NaN behind seqused.
void TestCall::poison_unused_rows(const Tensor& t, bool query) const {
  const auto& used = query ? test_case.used_q : test_case.used_k;
  const auto& lengths = query ? test_case.lengths_q : test_case.k_lengths();
  if (used.empty()) return;
  const bool packed = test_case.packed;
  const int64_t heads = t.shape[1], columns = t.shape[t.rank - 1];
  int64_t begin = 0;
  for (int64_t b = 0; b < test_case.batch(); begin += lengths[b++]) {
    for (int64_t x = 0; x < heads * (lengths[b] - used[b]) * columns; ++x) {
      const int64_t d = x % columns, row = used[b] + x / columns / heads, h = x / columns % heads;
      const int64_t at =
          packed ? (begin + row) * t.stride[0] + h * t.stride[1] + d * t.stride[2]
                 : b * t.stride[0] + h * t.stride[1] + row * t.stride[2] + d * t.stride[3];
      reference::store(t.data, t.dtype, at, kNan);
    }
  }
}

void TestCall::make_sequences() {
  const Case& c = test_case;
  const auto int_vector = [this](const std::vector<int32_t>& values) {
    const auto n = static_cast<int64_t>(values.size());
    const Tensor t = new_tensor(&input_blocks_, DType::kInt32, {n});
    std::copy(values.begin(), values.end(), static_cast<int32_t*>(t.data));
    return t;
  };
  if (c.packed) {
    for (bool query : {true, false}) {
      const auto& lengths = query ? c.lengths_q : c.k_lengths();
      std::vector<int32_t> cu = {0};
      for (int32_t n : lengths) cu.push_back(cu.back() + n);
      (query ? inputs.cu_seqlens_q : inputs.cu_seqlens_k) = int_vector(cu);
      (query ? inputs.max_seqlen_q : inputs.max_seqlen_k) = longest(lengths) + c.extra_max_seqlen;
    }
  }
  if (!c.used_q.empty()) inputs.seqused_q = int_vector(c.used_q);
  if (!c.used_k.empty()) inputs.seqused_k = int_vector(c.used_k);
}

// Random numbers, some -inf, and NaN where no pair of a query and a key in use looks.
void TestCall::make_mask() {
  const Case& c = test_case;
  if (c.mask == Mask::kNone) return;
  Shape shape = {c.batch(), c.heads_q, longest(c.lengths_q), longest(c.k_lengths())};
  if (c.packed) shape[2] += c.extra_max_seqlen, shape[3] += c.extra_max_seqlen;
  for (int dim : c.mask_broadcast) shape[dim] = 1;
  shape.erase(shape.begin(), shape.begin() + (4 - c.mask_rank));
  const DType dtype = c.mask == Mask::kBool      ? DType::kBool
                      : c.mask == Mask::kFloat32 ? DType::kFloat32
                                                 : c.dtype;
  Arrangement a;
  if (c.layout == Layout::kPadded || c.layout == Layout::kOffset) a.row_padding = 3;
  inputs.mask = new_tensor(&input_blocks_, dtype, shape, a);

  reference::Array values(shape, kNan);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < values.numel(); ++i) {
    const double x = normal(random_);
    if (c.mask == Mask::kBool) {
      values.data[i] = x > -0.5;
    } else {
      values.data[i] = x < -1 && c.mask_hides_keys ? -kInf : x;
    }
  }
  std::vector<char> read(values.data.size(), c.mask == Mask::kBool);
  for (int64_t b = 0; b < c.batch(); ++b) {
    const int64_t nq = c.used_q.empty() ? c.lengths_q[b] : c.used_q[b];
    const int64_t nk = c.used_k.empty() ? c.k_lengths()[b] : c.used_k[b];
    for (int64_t x = 0; x < c.heads_q * nq * nk; ++x) {
      const int64_t at[4] = {b, x / nk / nq, x / nk % nq, x % nk};
      int64_t index = 0;
      for (int d = 0; d < c.mask_rank; ++d) {
        index = index * shape[d] + (shape[d] == 1 ? 0 : at[4 - c.mask_rank + d]);
      }
      read[index] = true;
    }
  }
  for (size_t i = 0; i < read.size(); ++i) {
    if (!read[i]) values.data[i] = kNan;
  }
  reference::write(inputs.mask, values);
}

void TestCall::make_options() {
  const Case& c = test_case;
  if (c.sink) {
    inputs.sink = new_tensor(&input_blocks_, DType::kFloat32, {c.heads_q});
    fill(inputs.sink, 1);
  }
  if (c.alibi_rank) {
    const Shape shape = c.alibi_rank == 1 ? Shape{c.heads_q} : Shape{c.batch(), c.heads_q};
    inputs.alibi_slopes = new_tensor(&input_blocks_, DType::kFloat32, shape);
    fill(inputs.alibi_slopes, 0.1);
  }
}

void TestCall::make_gradients() {
  const Case& c = test_case;
  const Shape out_shape = rows_shape(true, c.heads_q, c.v_dim());
  Arrangement a = arrangement_of_rows();
  if (c.dout == Gradient::kExpanded) {
    a = {};
    a.expanded = c.packed ? std::vector{0, 1} : std::vector{0, 1, 2};
  }
  saved.dout = new_tensor(&input_blocks_, c.dtype, out_shape, a);
  fill(saved.dout, c.dout == Gradient::kZero ? 0 : 1);
  for (int64_t i = 0; c.dout == Gradient::kOnes && i < saved.dout.numel(); ++i) {
    reference::store(saved.dout.data, c.dtype, reference::element_offset(saved.dout, i), 1);
  }
  if (c.dout != Gradient::kExpanded) poison_unused_rows(saved.dout, true);
  saved.out = outputs.out;
  saved.lse = outputs.lse;
  if (c.dlse) {
    const Tensor& lse = outputs.lse;
    const Shape shape(lse.shape.begin(), lse.shape.begin() + lse.rank);
    saved.dlse = new_tensor(&input_blocks_, DType::kFloat32, shape);
    fill(saved.dlse, 1);
  }
  if (c.sink) gradients.dsink = new_tensor(&gradient_blocks_, DType::kFloat32, {c.heads_q});
  if (c.mask == Mask::kFloat32 || c.mask == Mask::kOfInputDtype) {
    const Tensor& m = inputs.mask;
    const Shape shape(m.shape.begin(), m.shape.begin() + m.rank);
    gradients.dmask =
        new_tensor(&gradient_blocks_, c.dmask_float32 ? DType::kFloat32 : m.dtype, shape);
  }
  if (c.no_dq) gradients.dq = {};
  if (c.no_dk) gradients.dk = {};
  if (c.no_dv) gradients.dv = {};
  if (c.no_dsink) gradients.dsink = {};
  if (c.no_dmask) gradients.dmask = {};
}

Status TestCall::run_forward(void* stream) {
  size_t bytes = 0;
  if (own_workspace) return forward(inputs, options, outputs, workspace, stream);
  FFPA_RETURN_IF_ERROR(forward_workspace_bytes(inputs, options, &bytes));
  const Buffer buffer(bytes);
  const Status status = forward(inputs, options, outputs, {buffer.data(), bytes}, stream);
  EXPECT_TRUE(buffer.guards_intact()) << "forward wrote outside its workspace of " << bytes;
  return status;
}

Status TestCall::run_backward(void* stream) {
  size_t bytes = 0;
  if (own_workspace) return backward(inputs, options, saved, gradients, workspace, stream);
  FFPA_RETURN_IF_ERROR(backward_workspace_bytes(inputs, options, gradients, &bytes));
  const Buffer buffer(bytes);
  const Status status = backward(inputs, options, saved, gradients, {buffer.data(), bytes}, stream);
  EXPECT_TRUE(buffer.guards_intact()) << "backward wrote outside its workspace of " << bytes;
  return status;
}

reference::Result TestCall::run() {
  for (Block& b : input_blocks_) b.remember();
  const Status forward_status = run_forward();
  EXPECT_TRUE(forward_status.ok()) << forward_status.message();
  if (forward_status.ok()) {
    const Status backward_status = run_backward();
    EXPECT_TRUE(backward_status.ok()) << backward_status.message();
  }
  expect_memory_intact();
  using reference::read;
  return {read(outputs.out),  read(outputs.lse),     read(gradients.dq),   read(gradients.dk),
          read(gradients.dv), read(gradients.dsink), read(gradients.dmask)};
}

void TestCall::expect_memory_intact() const {
  for (const Block& b : input_blocks_) EXPECT_FALSE(b.changed()) << "an input was written to";
  for (const auto* blocks : {&output_blocks_, &gradient_blocks_}) {
    for (const Block& b : *blocks) {
      EXPECT_EQ(b.damage_outside(), "") << "in the memory of an output of rank " << b.tensor().rank;
    }
  }
}

reference::Call TestCall::reference_call() const {
  return reference::read_call(inputs, options, saved.dout, saved.dlse);
}

bool TestCall::outputs_untouched() const {
  return std::all_of(output_blocks_.begin(), output_blocks_.end(),
                     [](const Block& b) { return b.untouched(); });
}

bool TestCall::gradients_untouched() const {
  return std::all_of(gradient_blocks_.begin(), gradient_blocks_.end(),
                     [](const Block& b) { return b.untouched(); });
}

reference::Result run(const Case& c) {
  SCOPED_TRACE(describe(c));
  return TestCall(c).run();
}

}  // namespace ffpa::test
