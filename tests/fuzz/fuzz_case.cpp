// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "fuzz/fuzz_case.h"

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <sstream>
#include <stdexcept>

namespace ffpa::test {
namespace {

constexpr DType kDtypes[] = {DType::kBFloat16, DType::kFloat16, DType::kFloat32};
constexpr const char* kLayouts[] = {"contiguous", "transposed", "fused",
                                    "padded",     "offset",     "expanded"};

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool once_in(int64_t n) { return below(n) == 0; }
  template <class T, size_t kCount>
  T one_of(const T (&values)[kCount]) {
    return values[below(kCount)];
  }

 private:
  std::mt19937_64 random_;
};

void draw_lengths(Draw& draw, Case* c) {
  constexpr int64_t kLongest[] = {4, 40, 200, 600};
  const int64_t sequences = 1 + draw.below(draw.once_in(3) ? 40 : 5);
  const bool self = !draw.once_in(3);
  c->lengths_q.clear();
  for (int64_t b = 0; b < sequences; ++b) {
    const int64_t longest = draw.one_of(kLongest) + 1;
    c->lengths_q.push_back(static_cast<int32_t>(draw.below(longest)));
    c->lengths_k.push_back(self ? c->lengths_q.back() : static_cast<int32_t>(draw.below(longest)));
  }
  if (draw.once_in(4)) c->extra_max_seqlen = draw.below(300);
}

void draw_heads(Draw& draw, Case* c) {
  constexpr int64_t kRatios[] = {1, 1, 2, 3, 4, 5, 7, 8, 12, 16};
  constexpr int64_t kHeadDims[] = {512, 512, 512, 64, 128, 192, 256, 320, 384, 448, 640};
  c->heads_kv = 1 + draw.below(3);
  c->heads_q = c->heads_kv * draw.one_of(kRatios);
  c->head_dim = draw.once_in(5) ? 8 * (1 + draw.below(80)) : draw.one_of(kHeadDims);
  if (draw.once_in(8)) c->head_dim_v = 8 * (1 + draw.below(64));
}

void draw_flags(Draw& draw, Case* c) {
  c->options.causal = !draw.once_in(3);
  if (draw.once_in(5)) c->options.window_left = draw.below(100);
  if (draw.once_in(8)) c->options.window_right = draw.below(100);
  if (draw.once_in(6)) c->options.softcap = 3;
  // Its gradient has a number per head: with few of them, how close the peer comes is luck.
  if (draw.once_in(6) && c->heads_q >= 8) c->sink = c->dlse = true;
  if (draw.once_in(4)) c->dlse = true;
  const auto used = [&](const std::vector<int32_t>& lengths) {
    std::vector<int32_t> n;
    for (int32_t length : lengths) n.push_back(static_cast<int32_t>(draw.below(length + 1)));
    return n;
  };
  if (draw.once_in(6)) c->used_q = used(c->lengths_q);
  if (draw.once_in(6)) c->used_k = used(c->lengths_k);
  c->layout = draw.once_in(2) ? Layout::kContiguous : static_cast<Layout>(draw.below(6));
}

double flops_of(const Case& c) {
  double pairs = 0;
  for (size_t b = 0; b < c.lengths_q.size(); ++b) pairs += 1.0 * c.lengths_q[b] * c.lengths_k[b];
  return 7 * pairs * static_cast<double>(c.heads_q * (c.head_dim + c.v_dim()));
}

int64_t elements_of(const Case& c) {
  int64_t rows_q = 0, rows_k = 0;
  for (int32_t n : c.lengths_q) rows_q += n;
  for (int32_t n : c.lengths_k) rows_k += n;
  return (rows_q * c.heads_q + rows_k * c.heads_kv) * (c.head_dim + c.v_dim());
}

// Fewer heads, then fewer sequences, then shorter ones.
void shrink(Case* c) {
  if (c->heads_kv > 1) {
    c->heads_q /= c->heads_kv;
    c->heads_kv = 1;
  } else if (c->lengths_q.size() > 1 && c->heads_q <= 4) {
    const size_t half = (c->lengths_q.size() + 1) / 2;
    c->lengths_q.resize(half);
    c->lengths_k.resize(half);
  } else if (c->heads_q > 4) {
    c->heads_q = 4;
  } else if (c->heads_q > 1) {
    c->heads_q = 1;
  } else {
    for (int32_t& n : c->lengths_q) n /= 2;
    for (int32_t& n : c->lengths_k) n /= 2;
  }
}

// The keys of the line: how each is written, and read back.
struct Field {
  const char* key;
  std::function<std::string(const Case&)> write;
  std::function<void(Case&, const std::string&)> read;
};

int64_t to_int(const std::string& text) {
  size_t end = 0;
  const int64_t value = std::stoll(text, &end);
  if (end != text.size()) throw std::invalid_argument(text);
  return value;
}

std::string join(const std::vector<int32_t>& values) {
  std::string text;
  for (int32_t v : values) text += (text.empty() ? "" : ",") + std::to_string(v);
  return text;
}
std::vector<int32_t> split(const std::string& text) {
  std::vector<int32_t> values;
  std::stringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    values.push_back(static_cast<int32_t>(to_int(part)));
  }
  return values;
}

template <class T>
Field integer(const char* key, T Case::* member) {
  return {key, [=](const Case& c) { return std::to_string(c.*member); },
          [=](Case& c, const std::string& s) { c.*member = static_cast<T>(to_int(s)); }};
}
template <class T>
Field option(const char* key, T AttentionOptions::* member) {
  return {key, [=](const Case& c) { return std::to_string(c.options.*member); },
          [=](Case& c, const std::string& s) { c.options.*member = static_cast<T>(std::stod(s)); }};
}
Field lengths(const char* key, std::vector<int32_t> Case::* member) {
  return {key, [=](const Case& c) { return join(c.*member); },
          [=](Case& c, const std::string& s) { c.*member = split(s); }};
}

const std::vector<Field>& fields() {
  static const std::vector<Field> all = {
      integer("seed", &Case::seed),
      {"dtype", [](const Case& c) { return std::string(dtype_name(c.dtype)); },
       [](Case& c, const std::string& s) {
         const auto* d = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                      [&](DType dtype) { return s == dtype_name(dtype); });
         if (d == std::end(kDtypes)) throw std::invalid_argument(s);
         c.dtype = *d;
       }},
      lengths("q", &Case::lengths_q),
      lengths("k", &Case::lengths_k),
      integer("heads_q", &Case::heads_q),
      integer("heads_kv", &Case::heads_kv),
      integer("head_dim", &Case::head_dim),
      integer("head_dim_v", &Case::head_dim_v),
      integer("extra_max_seqlen", &Case::extra_max_seqlen),
      option("causal", &AttentionOptions::causal),
      option("window_left", &AttentionOptions::window_left),
      option("window_right", &AttentionOptions::window_right),
      option("softcap", &AttentionOptions::softcap),
      integer("sink", &Case::sink),
      integer("dlse", &Case::dlse),
      lengths("used_q", &Case::used_q),
      lengths("used_k", &Case::used_k),
      {"layout", [](const Case& c) { return std::string(kLayouts[static_cast<int>(c.layout)]); },
       [](Case& c, const std::string& s) {
         const auto* name = std::find(std::begin(kLayouts), std::end(kLayouts), s);
         if (name == std::end(kLayouts)) throw std::invalid_argument(s);
         c.layout = static_cast<Layout>(name - kLayouts);
       }},
  };
  return all;
}

Case empty_case() {
  Case c;
  c.packed = true;
  c.lengths_q = {};
  return c;
}

}  // namespace

Case draw_case(uint64_t seed, const FuzzLimits& limits) {
  Draw draw(seed);
  Case c = empty_case();
  c.seed = seed;
  c.dtype = kDtypes[draw.below(limits.float32 ? 3 : 2)];
  draw_lengths(draw, &c);
  draw_heads(draw, &c);
  while (flops_of(c) > limits.most_flops || elements_of(c) > limits.most_elements) shrink(&c);
  draw_flags(draw, &c);
  return c;
}

std::string to_line(const Case& c) {
  const Case defaults = empty_case();
  std::string line;
  for (const Field& f : fields()) {
    const std::string value = f.write(c);
    if (value == f.write(defaults) && line.find("seed") != std::string::npos) continue;
    line += (line.empty() ? "" : " ") + std::string(f.key) + "=" + value;
  }
  return line;
}

Case from_line(const std::string& line) {
  Case c = empty_case();
  std::stringstream in(line);
  for (std::string part; in >> part;) {
    const size_t equals = part.find('=');
    const std::string key = part.substr(0, equals);
    const auto field = std::find_if(fields().begin(), fields().end(),
                                    [&](const Field& f) { return key == f.key; });
    try {
      if (field == fields().end() || equals == std::string::npos) throw std::invalid_argument(key);
      field->read(c, part.substr(equals + 1));
    } catch (const std::exception&) {
      throw std::invalid_argument("expected key=value as `ffpa fuzz` prints it, got '" + part +
                                  "'");
    }
  }
  if (c.lengths_q.empty()) throw std::invalid_argument("q=...: no lengths of the sequences");
  return c;
}

}  // namespace ffpa::test
