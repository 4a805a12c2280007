# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
#
# Programs for the portable CUDA kernels. They need a GPU: built, not registered with CTest.
add_executable(ffpa_sm80_tests
  gpu/sm80_device_call.cpp
  gpu/sm80_properties.cpp
  gpu/sm80_tests.cpp)
target_link_libraries(ffpa_sm80_tests PRIVATE ffpa_test_support GTest::gtest CUDA::cudart_static)
target_compile_options(ffpa_sm80_tests PRIVATE -Wall -Wextra)

add_executable(ffpa_sm80_bench gpu/sm80_bench.cpp)
target_link_libraries(ffpa_sm80_bench PRIVATE ffpa::ffpa CUDA::cudart_static)
target_compile_options(ffpa_sm80_bench PRIVATE -Wall -Wextra)
