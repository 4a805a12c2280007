// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "arguments.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string_view>

namespace ffpa::app {
namespace {

template <class Int>
bool number(std::string_view text, Int* to) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *to);
  return error == std::errc() && end == text.data() + text.size() && *to > 0;
}

bool parse_heads(std::string_view text, Shape* shape) {
  const size_t slash = text.find('/');
  if (slash == text.npos) return false;
  return number(text.substr(0, slash), &shape->heads_q) &&
         number(text.substr(slash + 1), &shape->heads_kv);
}

bool parse_lengths(std::string_view text, Shape* shape) {
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const size_t times = item.find('x');
    int32_t count = 1, length = 0;
    if (times != item.npos && !number(item.substr(0, times), &count)) return false;
    if (!number(times == item.npos ? item : item.substr(times + 1), &length)) return false;
    shape->lengths.insert(shape->lengths.end(), count, length);
  }
  return !shape->lengths.empty();
}

bool parse_dtype(std::string_view text, Shape* shape) {
  if (text == "bf16") {
    shape->dtype = DType::kBFloat16;
  } else if (text == "fp16") {
    shape->dtype = DType::kFloat16;
  } else if (text == "fp32") {
    shape->dtype = DType::kFloat32;
  } else {
    return false;
  }
  return true;
}

}  // namespace

int64_t Shape::tokens() const {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

int64_t Shape::max_seqlen() const { return *std::max_element(lengths.begin(), lengths.end()); }

std::vector<int32_t> Shape::cu_seqlens() const {
  std::vector<int32_t> cu = {0};
  for (int32_t n : lengths) cu.push_back(cu.back() + n);
  return cu;
}

double Shape::visible_pairs() const {
  double pairs = 0;
  for (double n : lengths) pairs += causal ? n * (n + 1) / 2 : n * n;
  return pairs;
}

std::string Shape::text() const {
  std::string text = std::string(dtype_name(dtype)) + (causal ? ", causal" : ", full") +
                     ", head_dim " + std::to_string(head_dim) + ", " + std::to_string(heads_q) +
                     " query heads on " + std::to_string(heads_kv) + " KV heads, sequences of";
  for (size_t i = 0; i < lengths.size() && i < 8; ++i) text += " " + std::to_string(lengths[i]);
  return text + (lengths.size() > 8 ? " ..." : "") + " tokens";
}

std::string parse(const std::vector<std::string>& arguments, Shape* shape) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i];
    if (name == "--full") {
      shape->causal = false;
      continue;
    }
    const std::string value = i + 1 < arguments.size() ? arguments[++i] : "";
    bool good = false;
    if (name == "--heads") {
      good = parse_heads(value, shape);
    } else if (name == "--head-dim") {
      good = number(value, &shape->head_dim);
    } else if (name == "--seqlens") {
      good = parse_lengths(value, shape);
    } else if (name == "--dtype") {
      good = parse_dtype(value, shape);
    } else {
      return name + ": expected --heads, --head-dim, --seqlens, --dtype or --full";
    }
    if (!good) {
      return name + ": expected " +
             (name == "--heads"      ? "QUERY/KV, such as 32/4"
              : name == "--head-dim" ? "a positive number"
              : name == "--seqlens"  ? "lengths, such as 3x2048 or 100,200,300"
                                     : "bf16, fp16 or fp32") +
             ", got '" + value + "'";
    }
  }
  return "";
}

}  // namespace ffpa::app
