// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "reference/philox.h"

namespace ffpa::reference {

std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return c;
}

bool dropout_keeps(uint64_t seed, uint64_t offset, uint64_t element, double p) {
  const uint64_t number = offset + element, block = number / 4;
  const auto random =
      philox4x32_10({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0},
                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return (random[number % 4] + 1.0) / 0x1p32 > p;
}

}  // namespace ffpa::reference
