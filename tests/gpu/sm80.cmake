# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
#
# Programs for the portable CUDA kernels. They need a GPU.
add_executable(ffpa_sm80_tests
  gpu/device_call.cpp
  gpu/sm80_properties.cpp
  gpu/sm80_tests.cpp)
target_link_libraries(ffpa_sm80_tests PRIVATE ffpa_test_support GTest::gtest CUDA::cudart_static)
target_compile_options(ffpa_sm80_tests PRIVATE -Wall -Wextra)
if(EXISTS /dev/nvidia0)
  add_test(NAME gpu_sm80 COMMAND ffpa_sm80_tests --quick)
  set_tests_properties(gpu_sm80 PROPERTIES LABELS gpu)
endif()

add_executable(ffpa_sm80_bench gpu/sm80_bench.cpp)
target_link_libraries(ffpa_sm80_bench PRIVATE ffpa::ffpa CUDA::cudart_static)
target_compile_options(ffpa_sm80_bench PRIVATE -Wall -Wextra)
