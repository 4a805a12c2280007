// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include "sm90/backward/blocks.h"
#include "sm90/backward/dkdv_machine.cuh"
#include "sm90/backward/launch.h"
#include "sm90/pipeline/start.cuh"

namespace ffpa::sm90 {

// By one thread: the pair's key tile, for the CTA `cta` of it.
template <class Config>
__device__ void fill_tile(const DkdvParams& p, int cta, SequenceTile item, int kv_in_chunk,
                          DkdvTile* tile) {
  const SequenceRows s = p.sequences.at(item.sequence);
  const Visibility v{s.len_q, s.len_k, p.window_left, p.window_right};
  const int key_row = 64 * item.tile, kv_head = p.chunk.first_kv_head + kv_in_chunk;
  const int batch = p.sequences.cu_k ? 0 : item.sequence, head = kv_head * p.group;
  const TileRange blocks = chunk_blocks(v, key_row, p.chunk);
  const int row =
      padded_tile(first_key_row(p.sequences, item.sequence, s), item.sequence) + item.tile;
  tile->blocks = blocks.count();
  tile->first_block = blocks.begin;
  // Keys behind the last one in use are hidden by the mask.
  const bool whole = key_row + 64 <= s.len_k;
  tile->full_begin = blocks.full_begin - blocks.begin;
  tile->full_end = whole ? blocks.full_end - blocks.begin : tile->full_begin;
  tile->key_row = key_row;
  tile->rows_k = s.rows_k;
  tile->len_q = s.len_q;
  tile->len_k = s.len_k;
  const int end_k = s.k_begin + s.len_k, end_q = s.q_begin + s.len_q;
  tile->x_x = p.own_units[cta].extent - s.len_k + key_row;
  tile->x_origin = p.own_units[cta].origin(batch, kv_head, end_k);
  tile->q_x = p.score_units[cta].extent - s.len_q;
  tile->score_origin = p.score_units[cta].origin(batch, head, end_q);
  tile->value_origin = p.value_units[cta].origin(batch, head, end_q);
  tile->statistics_row =
      64 * padded_tile(first_query_row(p.sequences, item.sequence, s), item.sequence);
  tile->first_head = head;
  tile->ds_tile = kv_in_chunk * p.group * int(p.ds_tiles_per_head) + p.key_tile_offset[row];
  const GradientRows& to = p.gradient[cta];
  tile->out_offset = batch * to.batch + kv_head * to.head + s.k_begin * to.row;
  tile->partial_offset =
      ((int64_t{kv_in_chunk} * p.key_tiles + row) * 2 + cta) * 2 * (Config::kColumns / 2) * 128;
}

template <class Config, int kCta>
FFPA_ROLE void run_dkdv(const DkdvParams& params, uint32_t smem, int warpgroup) {
  DkdvMachine<Config, kCta> machine(params, smem);
  if (warpgroup == 2) {
    ptx::setmaxnreg_dec<Config::kProducerRegisters>();
    const int warp = __shfl_sync(~0u, threadIdx.x % 128 / 32, 0);
    if (warp < 2) produce_dkdv(machine, warp);
  } else {
    ptx::setmaxnreg_inc<Config::kConsumerRegisters>();
    DkdvConsumer<DkdvMachine<Config, kCta>, kCta>(machine, warpgroup).run();
  }
}

template <class Config>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(Config::kThreads, 1)
    dkdv_kernel(const __grid_constant__ DkdvParams params) {
  using S = typename Config::SharedMemory;
  const uint32_t smem = ptx::shared_address(ffpa_shared);
  ptx::declare_waits();
  const uint32_t cta = ptx::cluster_rank(), pair = blockIdx.x / 2;
  const uint32_t tiles = *params.list_count;
  if (pair >= tiles * params.chunk.kv_heads) return;  // both CTAs

  init_barriers<S>(smem);
  if (threadIdx.x == 0) {
    ptx::store_shared(smem + S::kReport, int64_t(params.report));
    const SequenceTile item = params.list[pair % tiles];
    fill_tile<Config>(params, cta, item, pair / tiles,
                      reinterpret_cast<DkdvTile*>(ffpa_shared + S::kTile));
    write_role_tiles<S>(smem, int(pair), item.sequence,
                        int(params.chunk.first_kv_head + pair / tiles), 64 * item.tile);
  }
  __syncthreads();
  ptx::cluster_sync();

  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (cta == 0) {
    run_dkdv<Config, 0>(params, smem, warpgroup);
  } else {
    run_dkdv<Config, 1>(params, smem, warpgroup);
  }
  __syncwarp();
  ptx::cluster_sync();  // no CTA leaves while the other may still arrive at its barriers

  if (params.head_dim >= 0) return;  // always
  ptx::report_expired_wait<S::kReport, S::kRoleTiles>(params.kernel);
}

template <class Config>
cudaError_t launch_dkdv(const DkdvParams& params, int pairs, cudaStream_t stream) {
  constexpr uint32_t kBytes = Config::SharedMemory::kBytes;
  const cudaError_t error = cudaFuncSetAttribute(
      dkdv_kernel<Config>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  dkdv_kernel<Config><<<2 * pairs, Config::kThreads, kBytes, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace ffpa::sm90
