# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
#
# What `./run gpu-test` runs: CTest label gpu.
add_executable(ffpa_gpu_tests
  gpu/hopper_cases.cpp
  gpu/gpu_tests.cpp
  gpu/device_call.cpp)
target_link_libraries(ffpa_gpu_tests PRIVATE ffpa_test_support GTest::gtest CUDA::cudart_static)
target_compile_options(ffpa_gpu_tests PRIVATE -Wall -Wextra)
if(EXISTS /dev/nvidia0)
  add_test(NAME gpu COMMAND ffpa_gpu_tests)
  set_tests_properties(gpu PROPERTIES LABELS gpu)
endif()

# Links a kernel that loses a role's arrivals in place of the library's.
add_executable(ffpa_gpu_fault_test
  gpu/fault_kernel.cu
  gpu/fault_test.cpp
  gpu/device_call.cpp)
set_target_properties(ffpa_gpu_fault_test PROPERTIES CUDA_ARCHITECTURES 90a-real)
target_include_directories(ffpa_gpu_fault_test PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(ffpa_gpu_fault_test PRIVATE
  ffpa_test_support GTest::gtest CUDA::cudart_static)
if(EXISTS /dev/nvidia0)
  foreach(role RANGE 4)
    add_test(NAME gpu_fault_${role} COMMAND ffpa_gpu_fault_test ${role})
    set_tests_properties(gpu_fault_${role} PROPERTIES LABELS gpu TIMEOUT 60)
  endforeach()
endif()

add_executable(ffpa_gpu_bench ${PROJECT_SOURCE_DIR}/bench/gpu_attention.cpp)
target_link_libraries(ffpa_gpu_bench PRIVATE ffpa::ffpa CUDA::cudart_static ${CMAKE_DL_LIBS})
target_compile_options(ffpa_gpu_bench PRIVATE -Wall -Wextra)
