# What `cmake --install` puts where, and the Debian package of the same. Nothing installed names a
# folder of the build, so that the prefix can be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(PEAL_CONFIG_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/peal)
set(PEAL_PKGCONFIG_FOLDER ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(DIRECTORY include/peal DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS peal_device peal_host peal_wire peal_nic EXPORT peal-targets
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT peal-targets NAMESPACE peal:: DESTINATION ${PEAL_CONFIG_FOLDER})
# Of its own, as only who asks for it needs the CUDA toolkit.
if(TARGET peal_cuda)
  install(TARGETS peal_cuda EXPORT peal-cuda-targets)
  install(EXPORT peal-cuda-targets NAMESPACE peal:: DESTINATION ${PEAL_CONFIG_FOLDER})
endif()
foreach(name device host wire nic cuda)
  if(TARGET peal_${name})
    set_target_properties(peal_${name} PROPERTIES EXPORT_NAME ${name})
  endif()
endforeach()

set(PEAL_BINARY_FOLDER ${CMAKE_CURRENT_BINARY_DIR}/package)
write_basic_package_version_file(${PEAL_BINARY_FOLDER}/peal-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES cmake/peal-config.cmake cmake/libdeflate.cmake
        ${PEAL_BINARY_FOLDER}/peal-config-version.cmake
        DESTINATION ${PEAL_CONFIG_FOLDER})

file(RELATIVE_PATH PEAL_PREFIX_FROM_PKGCONFIG /prefix/${PEAL_PKGCONFIG_FOLDER} /prefix)
string(REGEX REPLACE "/$" "" PEAL_PREFIX_FROM_PKGCONFIG ${PEAL_PREFIX_FROM_PKGCONFIG})
foreach(name peal peal-device)
  configure_file(cmake/${name}.pc.in ${PEAL_BINARY_FOLDER}/${name}.pc @ONLY)
  install(FILES ${PEAL_BINARY_FOLDER}/${name}.pc DESTINATION ${PEAL_PKGCONFIG_FOLDER})
endforeach()

file(GLOB PEAL_TEXTS README.md CHANGELOG.md LICENSE* COPYING*)
install(FILES ${PEAL_TEXTS} DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR})

# `cmake --install --strip`, and a package, drop the archives' debug information, which is most of
# them and names the sources' folder. CMake itself strips programs only.
install(CODE "if(CMAKE_INSTALL_DO_STRIP)
  file(GLOB archives \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/libpeal_*.a\")
  execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-debug \${archives} COMMAND_ERROR_IS_FATAL ANY)
endif()")

if(NOT PROJECT_IS_TOP_LEVEL)
  return()  # the package is the other project's matter
endif()
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME peal)
set(CPACK_PACKAGE_VENDOR "the Peal project")
set(CPACK_PACKAGE_CONTACT "no maintainer, built from source <nobody@localhost.invalid>"
    CACHE STRING "Name and address of who answers for the package")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "GPU-initiated RDMA PUT over mlx5 queues")
set(CPACK_PACKAGE_DESCRIPTION
"A C++20 library for one-sided RDMA writes whose producers, CPU or GPU threads, build
mlx5 work queue entries and ring the NIC's doorbell themselves; a software ConnectX
to run them on; and the command peal, which checks every payload that it times.")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS libdeflate-dev)  # of libpeal_nic.a
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libibverbs1, ibverbs-providers")  # loaded at run time
set(CPACK_DEBIAN_PACKAGE_SUGGESTS libibverbs-dev)  # what adopt_mlx5dv.hpp includes
include(CPack)
