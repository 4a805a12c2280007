// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "sm90/tensor_map.h"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include "plan/row_units.h"

namespace ffpa::sm90 {
namespace {

PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder() {
  static const auto encoder = [] {
    void* f = nullptr;
    cudaDriverEntryPointQueryResult result;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault,
                                     &result);
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(f);
  }();
  return encoder;
}

}  // namespace

Status make_ragged_map(const RaggedTensor& t, CUtensorMap* map, RaggedUnits* units) {
  const RowUnits u = row_units(t.rows, t.batch, t.heads, t.length, t.head_dim);
  const int64_t row = u.row_bytes, unit = u.unit, last = u.last;
  *units = {int32_t(t.length), u.batch, u.head, u.row};
  if (!u.countable()) {
    return Status::unsupported(t.name, "strides that a tensor map can count in",
                               "rows every " + std::to_string(row) + " bytes, in all " +
                                   std::to_string(last) + " units of " + std::to_string(unit));
  }

  const bool grouped = t.groups > 0;
  const cuuint64_t dims[4] = {grouped ? 64u : cuuint64_t(t.head_dim), cuuint64_t(t.length),
                              grouped ? cuuint64_t(t.head_dim / 64) : cuuint64_t(last + 1),
                              cuuint64_t(last + 1)};
  const cuuint64_t strides[3] = {cuuint64_t(row), grouped ? 128u : cuuint64_t(unit),
                                 cuuint64_t(unit)};
  const cuuint32_t box[4] = {64, t.box_rows, grouped ? t.groups : 1, 1}, steps[4] = {1, 1, 1, 1};
  const auto encode = tensor_map_encoder();
  if (!encode) return Status::runtime("CUDA: the driver has no cuTensorMapEncodeTiled");
  const CUresult result =
      encode(map,
             t.dtype == DType::kBFloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                         : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
             grouped ? 4 : 3, t.rows.data - row * t.length, dims, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    return Status::runtime(std::string(t.name) + ": the driver refused its tensor map, error " +
                           std::to_string(int(result)));
  }
  return {};
}

}  // namespace ffpa::sm90
