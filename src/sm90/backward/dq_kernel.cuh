// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <cstddef>

#include "sm90/backward/blocks.h"
#include "sm90/backward/dq_roles.h"
#include "sm90/backward/gradient_store.cuh"
#include "sm90/backward/launch.h"
#include "sm90/pipeline/start.cuh"
#include "sm90/ptx/barrier.cuh"
#include "sm90/ptx/copy.cuh"
#include "sm90/ptx/memory.cuh"
#include "sm90/ptx/wait.cuh"
#include "sm90/ptx/wgmma.cuh"
#include "sm90/tile/swizzle.h"

namespace ffpa::sm90 {

template <class Config_>
struct DqMachine {
  using Config = Config_;
  using S = typename Config::SharedMemory;
  struct Sums {
    float x[Config::kColumns / 2];
  };

  const DqParams& params;
  const uint32_t smem;
  const int half;  // of the columns

  FFPA_ROLE DqMachine(const DqParams& p, uint32_t shared, int h)
      : params(p), smem(shared), half(h) {}

  FFPA_ROLE int field(uint32_t at) const {
    return __shfl_sync(~0u, ptx::load_shared_int(smem + S::kTile + at), 0);
  }
  FFPA_ROLE int begin() const { return field(offsetof(DqTile, begin)); }
  FFPA_ROLE int step_count() const { return field(offsetof(DqTile, end)) - begin(); }
  FFPA_ROLE int own_begin(int w) const {
    return field(offsetof(DqTile, block_begin) + 4 * w) - begin();
  }
  FFPA_ROLE int own_end(int w) const {
    return field(offsetof(DqTile, block_end) + 4 * w) - begin();
  }

  FFPA_ROLE void wait(Barrier b, uint32_t parity) { ptx::mbarrier_wait(smem + b.offset, parity); }
  FFPA_ROLE void arrive_one(Barrier b) {
    if (threadIdx.x % 128 == 0) ptx::mbarrier_arrive(smem + b.offset);
  }
  template <int kLeft>
  FFPA_ROLE void wait_groups() {
    ptx::wgmma_wait_group<kLeft>();
  }

  // Place of the tile of key tile `j` and of block `w`, in tiles.
  FFPA_ROLE int64_t ds_tile(int j, int w) const {
    const Visibility v{field(offsetof(DqTile, len_q)), field(offsetof(DqTile, len_k)),
                       params.window_left, params.window_right};
    const int first = chunk_blocks(v, 64 * j, params.chunk).begin;
    return int64_t{field(offsetof(DqTile, ds_tile))} +
           params.key_tile_offset[field(offsetof(DqTile, key_tile_row)) + j] +
           field(offsetof(DqTile, block)) + w - first;
  }
  FFPA_ROLE void load(uint32_t s, Barrier ready, int i) {
    const int j = begin() + i;
    bool exists[2];
    uint32_t bytes = Config::kKeyBytes;
    FFPA_UNROLL
    for (int w = 0; w < 2; ++w) {
      exists[w] = own_begin(w) <= i && i < own_end(w);
      if (exists[w]) bytes += S::kDsBytes;
    }
    const int x = field(offsetof(DqTile, k_x)) + 64 * j;
    const int origin = field(offsetof(DqTile, k_origin));
    if (ptx::elect_one()) ptx::mbarrier_arrive_expect(smem + ready.offset, bytes);
    FFPA_UNROLL
    for (int w = 0; w < 2; ++w) {
      if (!exists[w]) continue;
      const uint16_t* from = params.ds + ds_tile(j, w) * 4096;
      if (ptx::elect_one()) {
        ptx::bulk_load(smem + S::ds(s, w).offset, from, S::kDsBytes, smem + ready.offset);
      }
    }
    if (ptx::elect_one()) {
      ptx::tma_load_4d(smem + S::keys(s).offset, params.k, smem + ready.offset, 0, x,
                       Config::first_column(half) / 64, origin);
    }
  }

  FFPA_ROLE void clear(Sums& sums) {
    FFPA_UNROLL
    for (int i = 0; i < Config::kColumns / 2; ++i) sums.x[i] = 0;
  }
  // sums += dS[64 queries x 64 keys] K[64 keys x kColumns]; dS^T as it was stored
  FFPA_ROLE void add(Sums& sums, Buffer ds, Buffer keys, int /*i*/) {
    ptx::wgmma_fence();
    const uint64_t a = wgmma_descriptor(smem + ds.offset, 8192);
    const uint64_t b = wgmma_descriptor(smem + keys.offset, 8192);
    FFPA_UNROLL
    for (int k = 0; k < 4; ++k) {
      ptx::Wgmma<Config::kColumns, Config::kDType, true>::ts(sums.x, a + kStepMnMajor * k,
                                                             b + kStepMnMajor * k, true);
    }
    ptx::wgmma_commit_group();
  }
  FFPA_ROLE void store(const Sums& sums, int w) {
    const int block = field(offsetof(DqTile, block)) + w;
    if (block < params.chunk.block_begin || block >= params.chunk.block_end) return;
    const int64_t at = ptx::load_shared_int64(smem + S::kTile + offsetof(DqTile, out_offset));
    store_gradient<Config>(sums.x, params.dq, at, 64 * block, field(offsetof(DqTile, rows_q)), half,
                           params.scale);
  }
};

// By one thread.
inline __device__ void fill_tile(const DqParams& p, SequenceTile item, int head_in_chunk,
                                 DqTile* tile) {
  const SequenceRows s = p.sequences.at(item.sequence);
  const Visibility v{s.len_q, s.len_k, p.window_left, p.window_right};
  const int batch = p.sequences.cu_k ? 0 : item.sequence;
  const int head = p.chunk.first_kv_head * p.group + head_in_chunk, kv_head = head / p.group;
  tile->begin = tile->end = 0;
  for (int w = 0; w < 2; ++w) {
    const TileRange keys = chunk_key_tiles(v, 2 * item.tile + w, p.chunk);
    tile->block_begin[w] = keys.begin;
    tile->block_end[w] = keys.end;
    if (keys.count() == 0) continue;
    const bool none = tile->begin == tile->end;
    tile->begin = none ? keys.begin : min(tile->begin, keys.begin);
    tile->end = none ? keys.end : max(tile->end, keys.end);
  }
  for (int w = 0; w < 2; ++w) {  // a block without keys: an empty range inside
    if (tile->block_begin[w] == tile->block_end[w]) {
      tile->block_begin[w] = tile->block_end[w] = tile->begin;
    }
  }
  tile->block = 2 * item.tile;
  tile->rows_q = s.rows_q;
  tile->len_q = s.len_q;
  tile->len_k = s.len_k;
  tile->k_x = p.k_units.extent - s.len_k;
  tile->k_origin = p.k_units.origin(batch, kv_head, s.k_begin + s.len_k);
  tile->key_tile_row = padded_tile(first_key_row(p.sequences, item.sequence, s), item.sequence);
  tile->ds_tile = head_in_chunk * int(p.ds_tiles_per_head);
  tile->out_offset = batch * p.dq.batch + head * p.dq.head + s.q_begin * p.dq.row;
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    dq_kernel(const __grid_constant__ DqParams params) {
  using S = typename Config::SharedMemory;
  const uint32_t smem = ptx::shared_address(ffpa_shared);
  ptx::declare_waits();
  // The halves of the columns side by side, then the tiles, then the heads.
  const uint32_t tiles = *params.list_count, index = blockIdx.x / 2;
  if (index >= tiles * params.chunk.kv_heads * params.group) return;
  const SequenceTile item = params.list[index % tiles];
  if (2 * item.tile + 2 <= params.chunk.block_begin || 2 * item.tile >= params.chunk.block_end) {
    return;
  }
  init_barriers<S>(smem);
  if (threadIdx.x == 0) {
    ptx::store_shared(smem + S::kReport, int64_t(params.report));
    fill_tile(params, item, index / tiles, reinterpret_cast<DqTile*>(ffpa_shared + S::kTile));
    write_role_tiles<S>(smem, int(index), item.sequence,
                        int(params.chunk.first_kv_head * params.group + index / tiles),
                        128 * item.tile);
  }
  __syncthreads();

  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  DqMachine<Config> machine(params, smem, blockIdx.x % 2);
  if (warpgroup == 2) {
    ptx::setmaxnreg_dec<Config::kProducerRegisters>();
    if (__shfl_sync(~0u, threadIdx.x % 128 / 32, 0) == 0) produce_dq(machine);
  } else {
    ptx::setmaxnreg_inc<Config::kConsumerRegisters>();
    consume_dq(machine, warpgroup);
  }

  if (params.head_dim >= 0) return;  // always
  ptx::report_expired_wait<S::kReport, S::kRoleTiles>(params.kernel);
}

template <class Config>
cudaError_t launch_dq(const DqParams& params, int64_t tiles, cudaStream_t stream) {
  constexpr uint32_t kBytes = Config::SharedMemory::kBytes;
  const cudaError_t error =
      cudaFuncSetAttribute(dq_kernel<Config>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  dq_kernel<Config><<<unsigned(2 * tiles), Config::kThreads, kBytes, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace ffpa::sm90
