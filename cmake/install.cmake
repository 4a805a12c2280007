# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
#
# find_package(ffpa) after `cmake --install`.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(FFPA_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/ffpa)
install(TARGETS ffpa EXPORT ffpaTargets)
install(DIRECTORY include/ffpa DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT ffpaTargets NAMESPACE ffpa:: DESTINATION ${FFPA_CMAKE_DIR})
configure_package_config_file(cmake/ffpaConfig.cmake.in ${PROJECT_BINARY_DIR}/ffpaConfig.cmake
  INSTALL_DESTINATION ${FFPA_CMAKE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ffpaConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/ffpaConfig.cmake
  ${PROJECT_BINARY_DIR}/ffpaConfigVersion.cmake
  DESTINATION ${FFPA_CMAKE_DIR})
if(FFPA_BUILD_APP)
  install(TARGETS ffpa_app)
endif()
