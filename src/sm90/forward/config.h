// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Sizes of the forward kernel for head_dim 512, 16-bit types.
#pragma once

namespace ffpa::sm90 {

// K and V reach a warpgroup as chunks, one ring slot each:
//   K chunk [kBlockN keys x 512/kKChunks columns], V chunk [kBlockN/kVChunks keys x 256 columns].
template <int kStages_, int kKChunks_, int kVChunks_>
struct ForwardConfig {
  static constexpr int kHeadDim = 512;
  static constexpr int kBlockM = 64;   // query rows of a CTA
  static constexpr int kBlockN = 128;  // keys of a block
  static constexpr int kStages = kStages_;
  static constexpr int kKChunks = kKChunks_;
  static constexpr int kVChunks = kVChunks_;
  static constexpr int kEarlyV = kVChunks / 2;  // V slots handed back half-way through softmax
  static constexpr int kSlotBytes = 16384;

  static constexpr int kThreads = 384;  // two consumer warpgroups, one warpgroup of producers
  static constexpr int kProducerRegisters = 24;
  static constexpr int kConsumerRegisters = 240;
  static_assert(128 * (kProducerRegisters + 2 * kConsumerRegisters) <= 384 * 168,
                "setmaxnreg only moves registers inside what the launch got: 168 per thread");
};
using Forward512 = ForwardConfig<4, 8, 4>;

}  // namespace ffpa::sm90
